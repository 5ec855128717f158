package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.ContentCounter = (*service)(nil)

// Contents counts keys and leases, asking one member that answers, and the watchers of all that do.
func (s *service) Contents(ctx context.Context) (out map[string]topology.Content, err error) {
	err = errors.New("there are no members")
	for _, m := range s.members {
		if out, err = m.contents(ctx); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	watchers := topology.Content{PerUser: 2, PerLock: 2, Attached: true}
	for _, m := range s.members {
		if n, err := m.watchers(ctx); err == nil {
			watchers.N += int64(n)
		}
	}
	out["watchers"] = watchers
	return out, nil
}

func (m member) contents(ctx context.Context) (map[string]topology.Content, error) {
	keys, err := m.client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return nil, fmt.Errorf("count the keys through %s: %w", m.name, err)
	}
	leases, err := m.client.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("leases of %s: %w", m.name, err)
	}
	return map[string]topology.Content{
		"keys":   {N: keys.Count, PerUser: 1, PerLock: 4},
		"leases": {N: int64(len(leases.Leases)), PerUser: 1},
	}, nil
}
