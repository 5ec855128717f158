package servers

import (
	"context"
	"errors"
	"fmt"
)

// Capabilities returns what faults may use.
func (ms members) Capabilities() []any { return []any{writeRefuser{ms}, evictor{ms}} }

// Capabilities returns what faults may use; Sentinels have no keys.
func (s *sentinelService) Capabilities() []any { return s.nodes.servers.Capabilities() }

// Capabilities returns what faults may use. There is no evictor: its filler keys would also fall into other servers'
// slots.
func (s *clusterService) Capabilities() []any {
	return []any{clusterHandover{s.servers}, writeRefuser{s.servers}}
}

// writeRefuser makes servers refuse writes.
type writeRefuser struct{ servers members }

// unmet is a number of replicas that no server has. A server with fewer than min-replicas-to-write refuses every
// write with NOREPLICAS, including those of scripts, even if it has no replicas at all.
const (
	leastReplicas = "min-replicas-to-write"
	unmet         = "99"
)

// RefuseWrites makes one server require replicas that do not exist.
func (w writeRefuser) RefuseWrites(ctx context.Context, node string) (string, func(context.Context) error, error) {
	how := "CONFIG SET " + leastReplicas + " " + unmet
	nothing := func(context.Context) error { return nil }
	m, err := w.servers.find(node)
	if err != nil {
		return how, nothing, err
	}
	before, err := m.client.ConfigGet(ctx, leastReplicas).Result()
	if err == nil && before[leastReplicas] == "" {
		err = errors.New("it does not return the current value")
	}
	if err != nil {
		return how, nothing, fmt.Errorf("CONFIG GET of %s: %w", node, err)
	}
	allow := func(ctx context.Context) error {
		return m.client.ConfigSet(ctx, leastReplicas, before[leastReplicas]).Err()
	}
	return how, allow, m.client.ConfigSet(ctx, leastReplicas, unmet).Err()
}
