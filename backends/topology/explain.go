package topology

import (
	"context"

	"github.com/lockquake/lockquake/internal/node"
)

// Explainer is a Topology whose servers tell what may explain a finding: settings that decide about locks, and counts
// of what happened to them.
type Explainer interface {
	// Explain asks the servers. It writes nothing, and leaves out what they do not tell.
	Explain(ctx context.Context, servers []node.Handle) []Setting
}

// Setting is a setting of a server's, or what it has counted so far.
type Setting struct {
	Server, Name, Value string
	// Blames says, of a count, what it means for the locks that it has grown during a run, as the sentence that the
	// number begins: "keys were evicted". "": it says nothing by itself.
	Blames string
}
