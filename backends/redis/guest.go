package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

var (
	_ topology.Guest = (*service)(nil)
	_ topology.Guest = (*fiveService)(nil)
	_ topology.Guest = (*sentinelService)(nil)
)

// guestBatch is how many keys a server is asked to look at in one step of a SCAN, and to remove at once.
const guestBatch = 500

// checkPrefix refuses a prefix that could not begin the keys of a lock: what stands in braces decides about their slot.
func checkPrefix(c topology.Common) error {
	if strings.ContainsAny(c.Prefix(), "{}") {
		return fmt.Errorf("prefix is %q; it must not have braces, which are Redis Cluster's hash tag", c.Attached.Under)
	}
	return nil
}

// checkMaster refuses Sentinels of which nobody said what they call the primary.
func checkMaster(c topology.Common) error {
	if c.Attached != nil && c.Attached.Master == "" {
		return errors.New("master is missing; it is the name by which the Sentinels know the primary, such as mymaster")
	}
	return nil
}

// Vacant looks for keys with SCAN MATCH, on every server.
func (s *service) Vacant(ctx context.Context) error {
	return s.members.vacant(ctx, s.common.Attached.Under)
}

// Remove deletes the run's keys on every server.
func (s *service) Remove(ctx context.Context) (string, error) {
	return s.members.remove(ctx, s.common.Prefix())
}

// Vacant looks for keys with SCAN MATCH, on every server.
func (s *fiveService) Vacant(ctx context.Context) error {
	return s.members.vacant(ctx, s.five.common.Attached.Under)
}

// Remove deletes the run's keys on every server.
func (s *fiveService) Remove(ctx context.Context) (string, error) {
	return s.members.remove(ctx, s.five.common.Prefix())
}

// Vacant looks for keys on the primary, which the Sentinels name.
func (s *sentinelService) Vacant(ctx context.Context) error {
	primary, err := s.primary(ctx)
	if err != nil {
		return err
	}
	return members{primary}.vacant(ctx, s.common.Attached.Under)
}

// Remove deletes the run's keys on the primary; its replicas follow.
func (s *sentinelService) Remove(ctx context.Context) (string, error) {
	primary, err := s.primary(ctx)
	if err != nil {
		return "", err
	}
	return members{primary}.remove(ctx, s.common.Prefix())
}

// primary finds the primary of somebody else's Sentinels.
func (n sentinelNodes) primary(ctx context.Context) (member, error) {
	for _, m := range n.sentinels {
		if err := m.client.Ping(ctx).Err(); err != nil {
			return member{}, fmt.Errorf("%s at %s does not answer: %w", m.name, m.address, err)
		}
	}
	name, err := n.elected(ctx)
	if err != nil {
		return member{}, fmt.Errorf("%w; `endpoints` must have the addresses that the Sentinels give to clients", err)
	}
	return n.members.find(name)
}

// vacant is an error where any server has a key with that beginning. A server with a role other than master is refused: it takes no
// writes.
func (ms members) vacant(ctx context.Context, prefix string) error {
	for _, m := range ms {
		role, err := m.ask(ctx, chaos.FactRole)
		if err != nil {
			return fmt.Errorf("%s does not answer: %w", m.address, err)
		}
		if role != "master" {
			return fmt.Errorf("%s is a %s; the primary is needed", m.address, role)
		}
		err = m.scan(ctx, prefix, func(keys []string) error {
			return topology.Occupied("key " + keys[0] + " on " + m.address)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the keys with that beginning on every server.
func (ms members) remove(ctx context.Context, prefix string) (string, error) {
	removed := 0
	for _, m := range ms {
		err := m.scan(ctx, prefix, func(keys []string) error {
			for _, k := range keys { // one by one: a cluster takes no more
				n, err := m.client.Del(ctx, k).Result()
				if err != nil {
					return fmt.Errorf("delete %s on %s: %w", k, m.address, err)
				}
				removed += int(n)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("keys below %s: %d", prefix, removed), nil
}

// scan goes through the keys with that beginning, and stops at an error.
func (m member) scan(ctx context.Context, prefix string, found func(keys []string) error) error {
	var cursor uint64
	for {
		keys, next, err := m.client.Scan(ctx, cursor, literal.Replace(prefix)+"*", guestBatch).Result()
		if err != nil {
			return fmt.Errorf("SCAN of %s: %w", m.address, err)
		}
		for i := range keys {
			if !strings.HasPrefix(keys[i], prefix) { // whatever the pattern was taken for
				return fmt.Errorf("SCAN of %s: it answers with the key %s", m.address, keys[i])
			}
		}
		if len(keys) > 0 {
			if err := found(keys); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// literal takes their meaning from the signs of a pattern.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// readyAsGuest has the primary take a write. It forms nothing, and sets no timer of a Sentinel.
func (s *sentinelService) readyAsGuest(ctx context.Context) error {
	primary, err := s.primary(ctx)
	if err != nil {
		return err
	}
	return primary.write(ctx, primary.keys.ready())
}
