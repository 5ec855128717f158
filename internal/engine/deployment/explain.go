package deployment

import (
	"context"
	"slices"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// explainTimeout bounds a check of the settings of all servers.
const explainTimeout = 2 * time.Second

// Explain asks the servers for what may explain a finding, and records it as the state before the load, or after it.
func (d *Nodes) Explain(ctx context.Context, after bool) {
	e, ok := d.Plan.Topology.(topology.Explainer)
	if !ok || d.Cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	said := e.Explain(ctx, cluster.Handles(d.Cluster.ByRole(node.Server)))
	d.Dir.Change(func(env *results.Env) {
		for _, s := range said {
			i := slices.IndexFunc(env.Settings, func(o results.Setting) bool {
				return o.Server == s.Server &&
					o.Name == s.Name
			})
			if i < 0 {
				i, env.Settings = len(env.Settings),
					append(env.Settings, results.Setting{Server: s.Server, Name: s.Name})
			}
			o := &env.Settings[i]
			if o.Blames = s.Blames; after {
				o.After = s.Value
			} else {
				o.Before = s.Value
			}
		}
	})
}
