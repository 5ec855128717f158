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
	// Blames completes the sentence about a count that grew during a run, behind its number: "keys were evicted". It is
	// "" where the count says nothing by itself.
	Blames string
}
