package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends/topology"
)

var _ topology.Guest = (*service)(nil)

// Vacant reads one key below the prefix, through every member.
func (s *service) Vacant(ctx context.Context) (string, error) {
	if s.broken != nil {
		return "", s.broken
	}
	ctx, done := context.WithTimeout(ctx, s.params.Timeout)
	defer done()
	for _, m := range s.members {
		found, err := m.client.Get(ctx, s.common.Attached.Under, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithLimit(1))
		if err != nil {
			return "", fmt.Errorf("%s does not serve a read: %w", m.addr, err)
		}
		if len(found.Kvs) > 0 {
			return "", topology.Occupied("key " + string(found.Kvs[0].Key))
		}
	}
	return "", nil
}

// Remove deletes the keys below the run's own prefix. Leases of killed clients expire by themselves.
func (s *service) Remove(ctx context.Context, _ []string) (string, error) {
	var last error
	for _, m := range s.members {
		bounded, done := context.WithTimeout(ctx, s.params.Timeout)
		deleted, err := m.client.Delete(bounded, s.common.Prefix(), clientv3.WithPrefix())
		done()
		if err == nil {
			return fmt.Sprintf("keys below %s: %d", s.common.Prefix(), deleted.Deleted), nil
		}
		last = fmt.Errorf("delete through %s: %w", m.addr, err)
	}
	return "", last
}
