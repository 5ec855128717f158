package zookeeper

import (
	"context"
	"strings"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

var _ topology.Explainer = setup{}

// explaining are the values of the conf command that say how long sessions last, and how long a server may be cut off
// from its leader.
var explaining = map[string]bool{
	"tickTime": true, "minSessionTimeout": true, "maxSessionTimeout": true,
	"initLimit": true, "syncLimit": true,
}

// Explain asks the servers that allow the conf command.
func (t setup) Explain(ctx context.Context, servers []node.Handle) []topology.Setting {
	ctx, done := context.WithTimeout(ctx, t.params.Timeout)
	defer done()
	var out []topology.Setting
	for _, m := range t.members(servers) {
		text, err := m.word(ctx, "conf")
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && explaining[name] {
				out = append(out, topology.Setting{Server: m.name, Name: name, Value: value})
			}
		}
	}
	return out
}
