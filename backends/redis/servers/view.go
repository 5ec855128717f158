package servers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
)

// slots is the number of slots over which the keys are spread.
const slots = 16384

// peer is one line of CLUSTER NODES.
type peer struct {
	id      string
	address string // for clients
	flags   []string
	primary string // id of the primary that it follows, or "-"
	slots   [][2]int
}

// view is what one node of a cluster knows about all nodes.
type view []peer

// viewOf asks a node for its view.
func viewOf(ctx context.Context, m member) (view, error) {
	text, err := m.client.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("CLUSTER NODES of %s: %w", m.name, err)
	}
	return parseView(text), nil
}

// parseView parses CLUSTER NODES: "id address@bus flags primary ping pong epoch link slot...". Migrating slots, in
// brackets, are left out.
func parseView(text string) view {
	var out view
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		address, _, _ := strings.Cut(words[1], "@")
		p := peer{id: words[0], address: address, flags: strings.Split(words[2], ","), primary: words[3]}
		for _, w := range words[8:] {
			from, to, ranged := strings.Cut(w, "-")
			if !ranged {
				to = from
			}
			first, err1 := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err1 == nil && err2 == nil {
				p.slots = append(p.slots, [2]int{first, last})
			}
		}
		out = append(out, p)
	}
	return out
}

// viewOfSlot asks a node for its view, and for the slot of a lock.
func viewOfSlot(ctx context.Context, m member, lockName string) (view, int, error) {
	slot, err := m.client.ClusterKeySlot(ctx, m.keys.Key(lockName)).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("CLUSTER KEYSLOT of %s: %w", m.name, err)
	}
	v, err := viewOf(ctx, m)
	return v, int(slot), err
}

// self returns the node that was asked.
func (v view) self() peer {
	for _, p := range v {
		if slices.Contains(p.flags, "myself") {
			p.flags = slices.DeleteFunc(slices.Clone(p.flags), func(f string) bool { return f == "myself" })
			return p
		}
	}
	return peer{}
}

// owner returns the primary of a slot, or nil.
func (v view) owner(slot int) *peer {
	for i := range v {
		for _, r := range v[i].slots {
			if r[0] <= slot && slot <= r[1] {
				return &v[i]
			}
		}
	}
	return nil
}

// roleFor returns the asked node's own role for a slot.
func (v view) roleFor(slot int) string {
	self, owner := v.self(), v.owner(slot)
	switch {
	case owner == nil:
	case owner.id == self.id:
		return "master"
	case owner.id == self.primary:
		return "slave"
	}
	return "none"
}

// slotHolder reads the key on the asked node itself: READONLY lets a replica answer. A node without the key's slot
// answers MOVED: the key is certainly not there.
func slotHolder(ctx context.Context, m member, name string) (string, error) {
	var q question
	_, _ = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ReadOnly(ctx)
		q = ask(ctx, p, m.keys.Keys(name))
		p.ReadWrite(ctx) // otherwise the replica would answer on this connection as if the slot were its own
		return nil
	})
	v, err := q.values()
	if redis.HasErrorPrefix(err, "MOVED") {
		return "none", nil
	}
	return holderIn(v), err
}

// nameAmong returns the node's name among the members.
func (p *peer) nameAmong(ms members) string {
	if p == nil {
		return "none"
	}
	return ms.at(p.address)
}

// failing returns the names of the nodes that a node suspects, or considers failed.
func (v view) failing(ms members) string {
	var out []string
	for _, p := range v {
		if slices.Contains(p.flags, "fail") || slices.Contains(p.flags, "fail?") {
			out = append(out, ms.at(p.address))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// clusterInfo returns CLUSTER INFO.
func clusterInfo(ctx context.Context, m member) (map[string]string, error) {
	text, err := m.client.ClusterInfo(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("CLUSTER INFO of %s: %w", m.name, err)
	}
	return fields(text), nil
}

// shardsOf returns the slot ranges according to one node, and the sorted addresses of the primaries. Every slot must
// have a primary.
func shardsOf(ctx context.Context, m member) (ranges []redis.ClusterSlot, primaries []string, err error) {
	ranges, err = m.client.ClusterSlots(ctx).Result() //nolint:staticcheck // CLUSTER SHARDS would also list replicas without data
	if err != nil {
		return nil, nil, fmt.Errorf("CLUSTER SLOTS of %s: %w", m.name, err)
	}
	covered := 0
	for _, r := range ranges {
		if len(r.Nodes) > 0 {
			covered += r.End - r.Start + 1
			primaries = append(primaries, r.Nodes[0].Addr)
		}
	}
	if covered != slots {
		return nil, nil, fmt.Errorf("%s has primaries for %d of %d slots", m.name, covered, slots)
	}
	slices.Sort(primaries)
	return ranges, slices.Compact(primaries), nil
}

// writeAll makes every primary take a write, at keys that happen to be its own, acknowledged by so many of its
// replicas. owner returns the address of a slot's primary, or "".
func writeAll(ctx context.Context, ms, primaries members, replicas int, owner func(slot int) string) error {
	missing := map[string]member{}
	for _, m := range primaries {
		missing[m.address] = m
	}
	asked := ms[0]
	for n := 0; len(missing) > 0; n++ {
		if n == access.ReadyKeys {
			return fmt.Errorf("according to %s, none of %v is a primary", asked.name, slices.Collect(maps.Keys(missing)))
		}
		at := asked.keys.ReadyAt(n)
		slot, err := asked.client.ClusterKeySlot(ctx, at).Result()
		if err != nil {
			return fmt.Errorf("CLUSTER KEYSLOT: %w", err)
		}
		address := owner(int(slot))
		if address == "" {
			return fmt.Errorf("slot %d has no primary", slot)
		}
		m, ok := missing[address]
		if !ok {
			continue
		}
		if err := m.replicates(ctx, at, replicas); err != nil {
			return err
		}
		delete(missing, address)
	}
	return nil
}

// pair returns the primary and the replica of a handover: away from the node of the view, or to it.
func pair(v view) (primary, replica *peer) {
	self := v.self()
	for i := range v {
		p := &v[i]
		switch {
		case slices.Contains(p.flags, "fail"):
		case p.id == self.id && self.primary != "-":
			return v.node(self.primary), p
		case p.id == self.id:
			primary = p
		case p.primary == self.id && replica == nil:
			replica = p
		}
	}
	return primary, replica
}

func (v view) node(id string) *peer {
	i := slices.IndexFunc(v, func(p peer) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	return &v[i]
}
