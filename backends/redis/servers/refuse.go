package servers

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
)

var (
	_ chaos.WriteRefuser = members(nil)
	_ chaos.WriteRefuser = (*service)(nil)
	_ chaos.WriteRefuser = (*fiveService)(nil)
	_ chaos.WriteRefuser = (*sentinelService)(nil)
	_ chaos.WriteRefuser = (*clusterService)(nil)
)

// unmet is a number of replicas that no server has. One that has fewer than min-replicas-to-write refuses every write,
// those of scripts among them, with NOREPLICAS; also where it has no replicas at all.
const (
	leastReplicas = "min-replicas-to-write"
	unmet         = "99"
)

// RefuseWrites has one server wait for replicas that there are not.
func (ms members) RefuseWrites(ctx context.Context, node string) (string, func(context.Context) error, error) {
	how := "CONFIG SET " + leastReplicas + " " + unmet
	nothing := func(context.Context) error { return nil }
	m, err := ms.find(node)
	if err != nil {
		return how, nothing, err
	}
	before, err := m.client.ConfigGet(ctx, leastReplicas).Result()
	if err == nil && before[leastReplicas] == "" {
		err = errors.New("it does not say what it has now")
	}
	if err != nil {
		return how, nothing, fmt.Errorf("CONFIG GET of %s: %w", node, err)
	}
	allow := func(ctx context.Context) error {
		return m.client.ConfigSet(ctx, leastReplicas, before[leastReplicas]).Err()
	}
	return how, allow, m.client.ConfigSet(ctx, leastReplicas, unmet).Err()
}

// RefuseWrites has one server refuse writes; Sentinels have none.
func (s *sentinelService) RefuseWrites(ctx context.Context, node string) (string, func(context.Context) error, error) {
	return s.nodes.servers.RefuseWrites(ctx, node)
}

// RefuseWrites has one server refuse writes.
func (s *clusterService) RefuseWrites(ctx context.Context, node string) (string, func(context.Context) error, error) {
	return s.servers.RefuseWrites(ctx, node)
}
