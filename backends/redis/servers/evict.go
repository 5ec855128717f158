package servers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/chaos"
)

// A server that is filled has room for some hundred of the filler keys, and gets many times as many. Of the keys that
// were there and that are not used meanwhile, probably none is left. The filler keys expire, for policies that evict
// no others.
const (
	room      = 256 << 10 // bytes beyond its current use
	fillers   = 4000
	fillBytes = 1 << 10
	fillTTL   = 10 * time.Minute
	batch     = 200 // keys in a pipeline
)

// evictor makes servers evict keys.
type evictor struct{ servers members }

// FillMemory makes one server evict keys by the given policy.
func (e evictor) FillMemory(ctx context.Context, node, policy string) (seen chaos.Filled,
	empty func(context.Context) error, err error,
) {
	m, err := e.servers.find(node)
	if err != nil {
		return seen, func(context.Context) error { return nil }, err
	}
	f := &filler{member: m, before: map[string]string{}}
	seen, err = f.fill(ctx, policy)
	return seen, f.empty, err
}

// filler is one server whose memory is filled.
type filler struct {
	member
	before map[string]string // its settings
	sent   int               // keys
}

// The settings, in the order of the changes.
var memorySettings = []string{"maxmemory-policy", "maxmemory"}

func (f *filler) key(n int) string { return f.keys.Probe("fill-" + strconv.Itoa(n)) }

func (f *filler) fill(ctx context.Context, policy string) (seen chaos.Filled, err error) {
	for _, name := range memorySettings {
		got, err := f.client.ConfigGet(ctx, name).Result()
		if err != nil {
			return seen, fmt.Errorf("CONFIG GET %s: %w", name, err)
		}
		f.before[name] = got[name]
	}
	used, err := f.number(ctx, "memory", "used_memory")
	if err != nil {
		return seen, err
	}
	evicted, err := f.number(ctx, "stats", "evicted_keys")
	if err != nil {
		return seen, err
	}
	limit := strconv.FormatInt(used+room, 10)
	seen.How = "maxmemory " + limit + ", " + policy
	for i, to := range []string{policy, limit} {
		if err := f.client.ConfigSet(ctx, memorySettings[i], to).Err(); err != nil {
			return seen, fmt.Errorf("CONFIG SET %s %s: %w", memorySettings[i], to, err)
		}
	}
	for f.sent < fillers && seen.Refused == "" && err == nil {
		seen.Refused, err = f.send(ctx)
	}
	if err != nil {
		return seen, err
	}
	now, err := f.number(ctx, "stats", "evicted_keys")
	seen.Evicted = now - evicted
	return seen, err
}

// send writes the next keys, and returns the server's words if one was refused.
func (f *filler) send(ctx context.Context) (refused string, err error) {
	value := strings.Repeat("x", fillBytes)
	_, err = f.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range batch {
			p.Set(ctx, f.key(f.sent), value, fillTTL)
			f.sent++
		}
		return nil
	})
	if redis.HasErrorPrefix(err, "OOM") {
		return err.Error(), nil
	}
	return "", err
}

// empty restores the settings, and then deletes the filler keys.
func (f *filler) empty(ctx context.Context) error {
	for i := len(memorySettings) - 1; i >= 0; i-- {
		name := memorySettings[i]
		if was, known := f.before[name]; known {
			if err := f.client.ConfigSet(ctx, name, was).Err(); err != nil {
				return fmt.Errorf("CONFIG SET %s: %w", name, err)
			}
		}
	}
	for n := 0; n < f.sent; n += batch {
		keys := make([]string, 0, batch)
		for i := n; i < min(n+batch, f.sent); i++ {
			keys = append(keys, f.key(i))
		}
		if err := f.client.Unlink(ctx, keys...).Err(); err != nil {
			return fmt.Errorf("UNLINK: %w", err)
		}
	}
	return nil
}
