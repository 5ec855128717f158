package servers

import (
	"context"
	"errors"
	"fmt"
)

// Capabilities lists what faults may ask of servers.
func (ms members) Capabilities() []any { return []any{writeRefuser{ms}, evictor{ms}} }

// Capabilities lists what faults may ask of the servers; Sentinels have no keys.
func (s *sentinelService) Capabilities() []any { return s.nodes.servers.Capabilities() }

// Capabilities lists what faults may ask of the servers. Keys of ours would be in the slots of others, too: none is
// filled.
func (s *clusterService) Capabilities() []any {
	return []any{clusterHandover{s.servers}, writeRefuser{s.servers}}
}

// writeRefuser has servers refuse writes.
type writeRefuser struct{ servers members }

// unmet is a number of replicas that no server has. One that has fewer than min-replicas-to-write refuses every write,
// those of scripts among them, with NOREPLICAS; also where it has no replicas at all.
const (
	leastReplicas = "min-replicas-to-write"
	unmet         = "99"
)

// RefuseWrites has one server wait for replicas that there are not.
func (w writeRefuser) RefuseWrites(ctx context.Context, node string) (string, func(context.Context) error, error) {
	how := "CONFIG SET " + leastReplicas + " " + unmet
	nothing := func(context.Context) error { return nil }
	m, err := w.servers.find(node)
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
