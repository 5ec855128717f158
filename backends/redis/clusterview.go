package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// peer is one line of CLUSTER NODES.
type peer struct {
	id      string
	address string // for clients
	flags   []string
	primary string // id of the one that it follows, or "-"
	slots   [][2]int
}

// view is what one node of a cluster knows of all.
type view []peer

// view asks a node for its view.
func (m member) view(ctx context.Context) (view, error) {
	text, err := m.client.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("CLUSTER NODES of %s: %w", m.name, err)
	}
	return parseView(text), nil
}

// parseView reads CLUSTER NODES: "id address@bus flags primary ping pong epoch link slot...". Slots on their way from one node to
// another, in brackets, are left out.
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
	slot, err := m.client.ClusterKeySlot(ctx, m.keys.key(lockName)).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("CLUSTER KEYSLOT of %s: %w", m.name, err)
	}
	v, err := m.view(ctx)
	return v, int(slot), err
}

// self is the node that was asked.
func (v view) self() peer {
	for _, p := range v {
		if slices.Contains(p.flags, "myself") {
			p.flags = slices.DeleteFunc(slices.Clone(p.flags), func(f string) bool { return f == "myself" })
			return p
		}
	}
	return peer{}
}

// owner is the primary of a slot, or nil.
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

// roleFor is the asked node's own role for a slot.
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
