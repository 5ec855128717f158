package topology

import (
	"context"

	"github.com/lockquake/lockquake/internal/node"
)

// Explainer is a Topology whose servers report what may explain a finding: settings that affect locks, and counts of
// events that do.
type Explainer interface {
	// Explain asks the servers. It writes nothing, and leaves out what they do not report.
	Explain(ctx context.Context, servers []node.Handle) []Setting
}

// Setting is a setting or a counter of a server.
type Setting struct {
	Server, Name, Value string
	// Blames is set for a count: if it has grown during a run, this ends the sentence that the number begins: "keys
	// were evicted". "": the count says nothing by itself.
	Blames string
}
