package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

var _ topology.ContentCounter = members(nil)

// Contents counts keys of all databases, what their values consist of, scripts, connections and channels, each on the
// server that has most. The bound of connections is that of go-redis: ten for each core of a client.
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
	parts := topology.Content{PerUser: 4, PerLock: 16}
	kinds := numbers()
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
		for i := range kinds {
			if err := kinds[i].count(ctx, m); err != nil {
				return nil, err
			}
		}
		n, err := m.parts(ctx)
		if err != nil {
			return nil, err
		}
		parts.N = add(parts.N, n)
	}
	out := map[string]topology.Content{"keys": keys, "parts of values": parts}
	for _, k := range kinds {
		if k.reported {
			out[k.name] = k.content
		}
	}
	return out, nil
}

// infoKind is a kind of content whose number is in INFO.
type infoKind struct {
	name     string
	content  topology.Content
	section  string
	fields   []string
	reported bool // by a server: one that only speaks Redis's protocol may report less
}

func numbers() []infoKind {
	return []infoKind{
		{
			name: "connections", content: topology.Content{PerUser: 20, PerLock: 2, Attached: true},
			section: "clients", fields: []string{"connected_clients"},
		},
		{
			name: "channels", content: topology.Content{PerUser: 2, PerLock: 2, Attached: true},
			section: "stats", fields: []string{"pubsub_channels", "pubsub_patterns"},
		},
		{
			name: "scripts", content: topology.Content{PerUser: 10, PerLock: 4}, // they end with the server
			section: "memory", fields: []string{"number_of_cached_scripts"},
		},
	}
}

// count adds up the fields of one server.
func (k *infoKind) count(ctx context.Context, m member) error {
	section, err := m.info(ctx, k.section)
	if err != nil {
		return err
	}
	var n int64
	for _, field := range k.fields {
		text, ok := section[field]
		if !ok {
			continue
		}
		here, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", field, m.name, err)
		}
		n, k.reported = n+here, true
	}
	k.content.N = max(k.content.N, n)
	return nil
}

// partBytes is how much of a string counts as one part of it.
const partBytes = 256

// parts counts the elements of collections, and strings by their length: a lock may keep one key and add to it with
// each grant. Of a large server it counts guestKeys keys.
func (m member) parts(ctx context.Context) (n int64, err error) {
	_, err = m.scan(ctx, "", func(keys []string) error {
		types, sizes := map[string]*redis.StatusCmd{}, map[string]*redis.IntCmd{}
		_, err := m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, k := range keys {
				types[k] = p.Type(ctx, k)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("TYPE of keys of %s: %w", m.name, err)
		}
		size := map[string]func(redis.Pipeliner, string) *redis.IntCmd{
			"string": func(p redis.Pipeliner, k string) *redis.IntCmd { return p.StrLen(ctx, k) },
			"hash":   func(p redis.Pipeliner, k string) *redis.IntCmd { return p.HLen(ctx, k) },
			"list":   func(p redis.Pipeliner, k string) *redis.IntCmd { return p.LLen(ctx, k) },
			"set":    func(p redis.Pipeliner, k string) *redis.IntCmd { return p.SCard(ctx, k) },
			"zset":   func(p redis.Pipeliner, k string) *redis.IntCmd { return p.ZCard(ctx, k) },
			"stream": func(p redis.Pipeliner, k string) *redis.IntCmd { return p.XLen(ctx, k) },
		}
		_, _ = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for k, t := range types {
				if ask := size[t.Val()]; ask != nil {
					sizes[k] = ask(p, k)
				}
			}
			return nil
		})
		for k, s := range sizes {
			switch here, err := s.Result(); {
			case redis.HasErrorPrefix(err, "WRONGTYPE"): // another key of that name by now
			case err != nil:
				return fmt.Errorf("size of a key of %s: %w", m.name, err)
			case types[k].Val() == "string":
				n += (here + partBytes - 1) / partBytes
			default:
				n += here
			}
		}
		return nil
	})
	return n, err
}
