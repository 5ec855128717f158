package links

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/lockquake/lockquake/chaos/links"
)

// count adds up what the qdiscs of a fault have counted.
func (t *tree) count(space *namespace, slot int) (links.Shaped, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := netlinkIn(space)
	if err != nil {
		return links.Shaped{}, err
	}
	defer h.Close()
	return t.counted(h, slot)
}

func (t *tree) counted(h *netlink.Handle, slot int) (links.Shaped, error) {
	out := t.faults[slot].past
	out.Engine = t.faults[slot].shaping.Engine
	all, err := h.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: t.link}})
	if err != nil {
		return out, fmt.Errorf("list the traffic control of the link: %w", err)
	}
	for _, q := range all {
		s := q.Attrs().Statistics
		if s == nil || s.Basic == nil || s.Queue == nil || !t.owns(slot, q.Attrs().Handle) {
			continue
		}
		out.Passed, out.Dropped, out.Waiting = out.Passed+uint64(s.Basic.Packets), out.Dropped+uint64(s.Queue.Drops),
			out.Waiting+int(s.Queue.Qlen)
	}
	return out, nil
}

// remember keeps the counts of other faults in the classes that are removed with one.
func (t *tree) remember(h *netlink.Handle, slot int) error {
	for other, b := range t.faults {
		if b == nil {
			continue
		}
		before, err := t.counted(h, other)
		if err != nil {
			return err
		}
		kept := map[uint16]*treeClass{}
		for minor, c := range t.classes {
			if minor&(1<<slot) == 0 {
				kept[minor] = c
			}
		}
		all := t.classes
		t.classes = kept
		after, err := t.counted(h, other)
		t.classes = all
		if err != nil {
			return err
		}
		b.past.Passed, b.past.Dropped = b.past.Passed+before.Passed-after.Passed,
			b.past.Dropped+before.Dropped-after.Dropped
	}
	return nil
}

func (t *tree) owns(slot int, handle uint32) bool {
	for _, b := range t.classes {
		if major, ok := b.qdiscs[slot]; ok && handle == netlink.MakeHandle(major, 0) {
			return true
		}
	}
	return false
}

// standing returns the number of active faults in the tree.
func (t *tree) standing() int {
	n := 0
	for _, b := range t.faults {
		if b != nil {
			n++
		}
	}
	return n
}

// strays names the qdiscs on the tree's link that belong to no fault in it.
func (t *tree) strays(space *namespace) ([]string, error) {
	h, err := netlinkIn(space)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	all, err := h.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: t.link}})
	if err != nil {
		return nil, fmt.Errorf("list the traffic control of the link: %w", err)
	}
	var out []string
	for _, q := range all {
		handle := q.Attrs().Handle
		// the kernel's own at the end of a chain; the root
		owned := handle == 0 || handle == netlink.MakeHandle(treeMajor, 0)
		for slot, b := range t.faults {
			owned = owned || b != nil && t.owns(slot, handle)
		}
		if !owned {
			out = append(out, fmt.Sprintf("the qdisc %s %x:", q.Type(), handle>>16))
		}
	}
	return out, nil
}

// roots returns the root qdiscs of a namespace by the names of their links.
func (n *namespace) roots() (map[string]netlink.Qdisc, error) {
	h, err := netlinkIn(n)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	all, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the network links: %w", err)
	}
	out := map[string]netlink.Qdisc{}
	for _, l := range all {
		root, err := rootOf(h, l.Attrs().Index)
		if err != nil {
			return nil, err
		}
		if root != nil {
			out[l.Attrs().Name] = root
		}
	}
	return out, nil
}

// ownRoot reports whether any link of a namespace has a root of ours.
func ownRoot(space *namespace) (bool, error) {
	all, err := space.roots()
	for _, root := range all {
		if root.Attrs().Handle == netlink.MakeHandle(treeMajor, 0) {
			return true, nil
		}
	}
	return false, err
}
