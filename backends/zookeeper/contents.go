package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.ContentCounter = (*service)(nil)

// Contents counts nodes and sessions, asking one server that answers. One node for all locks, and one for each lock,
// remain by design.
func (s *service) Contents(ctx context.Context) (map[string]topology.Content, error) {
	err := errors.New("there are no servers")
	for _, m := range s.members {
		const nodes, sessions = "zk_znode_count", "zk_global_sessions"
		var n map[string]int64
		if n, err = m.monitored(ctx, nodes, sessions); err != nil {
			continue
		}
		if len(n) < 2 {
			err = fmt.Errorf("mntr of %s names only %v", m.name, n)
			continue
		}
		return map[string]topology.Content{
			"nodes":    {N: n[nodes], PerUser: 1, PerLock: 4},
			"sessions": {N: n[sessions], PerUser: 2, Attached: true},
		}, nil
	}
	return nil, err
}
