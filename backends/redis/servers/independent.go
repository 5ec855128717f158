package servers

import (
	"context"

	"github.com/lockquake/lockquake/backends/topology"
)

// independentServers are servers that do not know each other.
type independentServers struct {
	members
	attached attachedServers
}

func independents(servers members, c topology.Common) independentServers {
	return independentServers{members: servers, attached: attachedServers{servers: servers, common: c}}
}

// Ready makes every server take a write.
func (s independentServers) Ready(ctx context.Context) error { return s.attached.Ready(ctx) }

// Vacant looks for keys on every server.
func (s independentServers) Vacant(ctx context.Context) (string, error) {
	return s.attached.Vacant(ctx)
}

// Remove deletes the run's keys on every server.
func (s independentServers) Remove(ctx context.Context, locks []string) (string, error) {
	return s.attached.Remove(ctx, locks)
}
