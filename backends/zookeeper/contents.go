package zookeeper

import (
	"context"
	"errors"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.ContentCounter = (*service)(nil)

// Contents counts nodes and sessions, asking one server that answers, and the watches of all that do. One node for all
// locks, and one for each lock, remain by design.
func (s *service) Contents(ctx context.Context) (map[string]topology.Content, error) {
	err := errors.New("there are no servers")
	var out map[string]topology.Content
	watches := topology.Content{PerUser: 2, PerLock: 2, Attached: true}
	for _, m := range s.members {
		const nodes, sessions, watched = "zk_znode_count", "zk_global_sessions", "zk_watch_count"
		n, failed := m.monitored(ctx, nodes, sessions, watched)
		if failed != nil {
			err = failed
			continue
		}
		watches.N += n[watched]
		out = map[string]topology.Content{
			"nodes":    {N: n[nodes], PerUser: 1, PerLock: 4},
			"sessions": {N: n[sessions], PerUser: 2, Attached: true},
			"watches":  watches,
		}
	}
	if out == nil {
		return nil, err
	}
	return out, nil
}
