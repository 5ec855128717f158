package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

var _ topology.ContentCounter = members(nil)

// Contents counts keys of all databases, connections and channels, each on the server that has most. The bound of
// connections is that of go-redis: ten for each core of a client.
func (ms members) Contents(ctx context.Context) (map[string]topology.Content, error) {
	return contents(ctx, ms, func(a, b int64) int64 { return max(a, b) })
}

// Contents counts like other topologies, but adds up the primaries' keys, because each has its own slots.
func (s *clusterService) Contents(ctx context.Context) (map[string]topology.Content, error) {
	var primaries members
	for _, m := range s.servers {
		role, err := m.ask(ctx, chaos.FactRole)
		if err != nil {
			return nil, err
		}
		if role == "master" {
			primaries = append(primaries, m)
		}
	}
	return contents(ctx, primaries, func(a, b int64) int64 { return a + b })
}

// Contents counts what the servers store, without the Sentinels.
func (s *sentinelService) Contents(ctx context.Context) (map[string]topology.Content, error) {
	return s.nodes.servers.Contents(ctx)
}

// contents asks each server; add combines the numbers of two servers.
func contents(ctx context.Context, ms members, add func(a, b int64) int64) (map[string]topology.Content, error) {
	if len(ms) == 0 {
		return nil, errors.New("there are no servers")
	}
	keys := topology.Content{PerUser: 1, PerLock: 4}
	connections := topology.Content{PerUser: 20, PerLock: 2, Attached: true}
	channels := topology.Content{PerUser: 2, PerLock: 2, Attached: true}
	for _, m := range ms {
		databases, err := m.info(ctx, "keyspace")
		if err != nil {
			return nil, err
		}
		var here int64
		for _, what := range databases { // "keys=2,expires=1,avg_ttl=900"
			n, _, _ := strings.Cut(strings.TrimPrefix(what, "keys="), ",")
			k, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("INFO keyspace of %s says %q", m.name, what)
			}
			here += k
		}
		keys.N = add(keys.N, here)
		for _, count := range []struct {
			of             *topology.Content
			section, field string
		}{{&connections, "clients", "connected_clients"}, {&channels, "stats", "pubsub_channels"}} {
			section, err := m.info(ctx, count.section)
			if err != nil {
				return nil, err
			}
			n, err := strconv.ParseInt(section[count.field], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("INFO %s of %s: %w", count.section, m.name, err)
			}
			count.of.N = max(count.of.N, n)
		}
	}
	return map[string]topology.Content{"keys": keys, "connections": connections, "channels": channels}, nil
}
