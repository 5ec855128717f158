package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

const (
	// guestBatch is how many keys a server examines in one step of a SCAN, and how many are deleted at once.
	guestBatch = 500
	// guestKeys is how many keys of a server are examined. That takes less than a tenth of a second of its time.
	guestKeys = 100_000
)

// checkPrefix rejects a prefix that cannot begin a lock's keys: text in braces would determine their slot.
func checkPrefix(c topology.Common) error {
	if strings.ContainsAny(c.Prefix(), "{}") {
		return fmt.Errorf("prefix is %q; it must not have braces, which are Redis Cluster's hash tag", c.Attached.Under)
	}
	return nil
}

// checkMaster rejects Sentinels without the primary's name in their configuration.
func checkMaster(c topology.Common) error {
	if c.Attached != nil && c.Attached.Master == "" {
		return errors.New("master is missing; it is the name by which the Sentinels know the primary, such as mymaster")
	}
	return nil
}

// attachedServers are a service's servers that take writes. If they are external, the run enters and leaves them.
type attachedServers struct {
	servers members // servers that take writes
	common  topology.Common
	// route sends each command to the server that has its key, if they share the keys; nil: every server has all of
	// them.
	route redis.Cmdable
}

// marker is a key below a prefix that a run leaves there until it has removed the rest. So one look shows whether
// another run is there, or was interrupted, whatever else a server has.
func marker(under string) string { return under + "lockquake" }

// clients returns the clients that reach each key: one that routes, or one per server.
func (v attachedServers) clients() []redis.Cmdable {
	if v.route != nil {
		return []redis.Cmdable{v.route}
	}
	var out []redis.Cmdable
	for _, m := range v.servers {
		out = append(out, m.client)
	}
	return out
}

// Vacant returns an error if any server has the marker, or, among the examined keys, one with that prefix. It returns
// what was not examined. A server with a role other than master is rejected, because it takes no writes.
func (v attachedServers) Vacant(ctx context.Context) (string, error) {
	under := v.common.Attached.Under
	for _, m := range v.servers {
		role, err := m.ask(ctx, chaos.FactRole)
		if err != nil {
			return "", fmt.Errorf("%s does not answer: %w", m.address, err)
		}
		if role != "master" {
			return "", fmt.Errorf("%s is a %s; use the primary", m.address, role)
		}
	}
	for _, c := range v.clients() {
		run, err := c.Get(ctx, marker(under)).Result()
		if err == nil {
			return "", topology.Occupied("key " + marker(under) + ": run " + run + " is there, or was cut short")
		}
		if !errors.Is(err, redis.Nil) {
			return "", fmt.Errorf("GET %s: %w", marker(under), err)
		}
	}
	var partly []string
	for _, m := range v.servers {
		missed, err := m.scan(ctx, under, func(keys []string) error {
			return topology.Occupied("key " + keys[0] + " on " + m.address)
		})
		if err != nil {
			return "", err
		}
		if missed != "" {
			partly = append(partly, missed)
		}
	}
	return strings.Join(partly, ", "), nil
}

// mark writes the marker on external servers.
func (v attachedServers) mark(ctx context.Context) error {
	if v.common.Attached == nil {
		return nil
	}
	for _, c := range v.clients() {
		if err := c.Set(ctx, marker(v.common.Attached.Under), v.common.Attached.Run, 0).Err(); err != nil {
			return fmt.Errorf("SET %s: %w", marker(v.common.Attached.Under), err)
		}
	}
	return nil
}

// Ready writes the marker, and makes every server take a write.
func (v attachedServers) Ready(ctx context.Context) error {
	if err := v.mark(ctx); err != nil {
		return err
	}
	return v.servers.Ready(ctx)
}

// Remove deletes the keys of the run's locks by their names, then whatever a scan finds below the run's prefix, and
// finally the marker.
func (v attachedServers) Remove(ctx context.Context, locks []string) (string, error) {
	prefix := v.common.Prefix()
	keys := access.Keyspace(prefix)
	names := []string{keys.Ready()}
	if v.route != nil {
		names = keys.AllReady()
	}
	for _, l := range locks {
		names = append(append(names, keys.Keys(l)...), keys.Counter(l), keys.Probe(l))
	}
	removed := 0
	for _, c := range v.clients() {
		n, err := deleteKeys(ctx, c, names)
		if err != nil {
			return "", err
		}
		removed += n
	}
	for _, m := range v.servers {
		_, err := m.scan(ctx, prefix, func(keys []string) error {
			n, err := deleteKeys(ctx, m.client, keys)
			removed += n
			return err
		})
		if err != nil {
			return "", err
		}
	}
	for _, c := range v.clients() {
		if _, err := deleteKeys(ctx, c, []string{marker(v.common.Attached.Under)}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("keys below %s: %d", prefix, removed), nil
}

// deleteKeys deletes keys, each with its own command, as the servers of a cluster require.
func deleteKeys(ctx context.Context, c redis.Cmdable, keys []string) (int, error) {
	removed := 0
	for batch := range slices.Chunk(keys, guestBatch) {
		answers, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, k := range batch {
				p.Del(ctx, k)
			}
			return nil
		})
		if err != nil {
			return removed, fmt.Errorf("delete %d keys from %s on: %w", len(batch), batch[0], err)
		}
		for _, a := range answers {
			if n, ok := a.(interface{ Val() int64 }); ok {
				removed += int(n.Val())
			}
		}
	}
	return removed, nil
}

// scan iterates over the keys with that prefix, and stops at an error. A SCAN examines every key of the server,
// whatever it matches. So on a large server scan stops after guestKeys, and says so.
func (m member) scan(ctx context.Context, prefix string, found func(keys []string) error) (missed string, err error) {
	var cursor uint64
	for looked := 0; ; {
		keys, next, err := m.client.Scan(ctx, cursor, literal.Replace(prefix)+"*", guestBatch).Result()
		if err != nil {
			return "", fmt.Errorf("SCAN of %s: %w", m.address, err)
		}
		for i := range keys {
			if !strings.HasPrefix(keys[i], prefix) { // even if the pattern matched something else
				return "", fmt.Errorf("SCAN of %s: it returned the key %s", m.address, keys[i])
			}
		}
		if len(keys) > 0 {
			if err := found(keys); err != nil {
				return "", err
			}
		}
		looked += guestBatch
		if cursor = next; cursor == 0 {
			return "", nil
		}
		if looked >= guestKeys {
			all, err := m.client.DBSize(ctx).Result()
			return fmt.Sprintf("some %d of %d keys of %s", looked, all, m.address), err
		}
	}
}

// literal escapes glob metacharacters.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
