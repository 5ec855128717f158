package servers

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// Identify asks for the run_id of the server.
func (single) Identify(ctx context.Context, endpoints []node.Handle) ([]topology.Met, error) {
	return meetAll(ctx, endpoints, true)
}

// Identify asks for the run_ids of the servers. They share no keys, so there must be one behind each address.
func (five) Identify(ctx context.Context, endpoints []node.Handle) ([]topology.Met, error) {
	return meetAll(ctx, endpoints, true)
}

// Identify asks the servers. It does not matter which Sentinel answers: a majority of them must agree.
func (sentinel) Identify(ctx context.Context, endpoints []node.Handle) ([]topology.Met, error) {
	return meetAll(ctx, endpoints, true)
}

// Identify asks the endpoints. These only tell clients where the servers are, so one address may have several.
func (sharded) Identify(ctx context.Context, endpoints []node.Handle) ([]topology.Met, error) {
	return meetAll(ctx, endpoints, false)
}

// meetAll asks every server for its run_id, over fresh connections.
func meetAll(ctx context.Context, endpoints []node.Handle, alone bool) ([]topology.Met, error) {
	servers := membersOf(endpoints, seen{port: access.Port, timeout: observeTimeout})
	defer func() { _ = servers.Close() }()
	var out []topology.Met
	for _, m := range servers {
		met, err := topology.Meet(ctx, m.address, alone, m.freshRunID)
		if err != nil {
			return nil, err
		}
		out = append(out, met)
	}
	return out, nil
}

// freshRunID asks for the run_id over a new connection.
func (m member) freshRunID(ctx context.Context) (string, error) {
	o := *m.client.Options()
	m.client = redis.NewClient(&o)
	defer func() { _ = m.client.Close() }()
	return m.ask(ctx, "run-id")
}
