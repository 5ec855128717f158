package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// grown is a fault whose packets the kernel shapes.
type grown struct {
	links *links
	tree  *tree
	space *namespace
	slot  int
}

// growShaping puts a shaping into the tree of a namespace, and says how packets come to it.
func (l *links) growShaping(space *namespace, key string, args FilterArgs) (*grown, special, error) {
	for _, r := range args.Rules {
		if !r.Out {
			return nil, special{}, errors.New("the kernel shapes what a node sends, and nothing else")
		}
	}
	t := l.tree(space)
	slot, err := t.add(space, &branch{key: key, rules: args.Rules, shaping: *args.Shaping})
	if err != nil {
		return nil, special{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	number := map[string]uint16{}
	for _, r := range args.Rules {
		number[r.Peer] = t.number(r.Peer)
	}
	return &grown{links: l, tree: t, space: space, slot: slot}, special{first: func(r Rule) []expr.Any {
		return intoClass(number[r.Peer], slot)
	}}, nil
}

// intoClass writes into a packet's priority which peer it is for, and adds a fault to those that it is hit by.
func intoClass(peer uint16, slot int) []expr.Any {
	const faults = (1<<treeFaults - 1) << faultShift
	fault := uint32(1) << slot << faultShift
	keep := uint32(faults) &^ fault
	set := uint32(treeMajor)<<16 | uint32(peer)<<peerShift | fault
	word := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: word(keep), Xor: word(set)},
		&expr.Meta{Key: expr.MetaKeyPRIORITY, SourceRegister: true, Register: 1},
	}
}

func (g *grown) met(f *Filtered) error {
	s, err := g.tree.count(g.space, g.slot)
	if err == nil {
		f.Shaped = &s
	}
	return err
}

// release counts what waits. It goes when its time comes: the kernel lets nothing go sooner.
func (g *grown) release() int {
	s, err := g.tree.count(g.space, g.slot)
	if err != nil {
		return 0
	}
	return s.Waiting
}

// close waits until what was under way has left, and takes the fault out of the tree.
func (g *grown) close() error {
	for over := clock.Now() + int64(drainPatience); clock.Now() < over; time.Sleep(2 * time.Millisecond) {
		if g.release() == 0 {
			break
		}
	}
	g.tree.mu.Lock()
	defer g.tree.mu.Unlock()
	h, err := netlinkIn(g.space)
	if err != nil {
		return err
	}
	defer h.Close()
	return g.tree.cut(h, g.slot)
}

// treeStands tells whether faults stand in a namespace's tree.
func (l *links) treeStands(space *namespace) bool {
	l.mu.Lock()
	t := l.trees[space.id]
	l.mu.Unlock()
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.link != 0
}

// tryNetem and tryTBF shape nothing, by the rules and the tree that shape, on a link that leads nowhere.
func tryNetem(space *namespace) error {
	return tryTree(space, Shaping{Engine: EngineNetem, Delay: time.Millisecond})
}

func tryTBF(space *namespace) error {
	return tryTree(space, Shaping{Engine: EngineTBF, Rate: 1_000_000})
}

func tryTree(space *namespace, s Shaping) error {
	h, err := netlinkIn(space)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback link: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("switch on the loopback link: %w", err)
	}
	const peer = "192.0.2.1"
	route := netlink.Route{LinkIndex: lo.Attrs().Index, Dst: &net.IPNet{IP: net.ParseIP(peer), Mask: net.CIDRMask(32, 32)}}
	if err := h.RouteAdd(&route); err != nil {
		return fmt.Errorf("make a route: %w", err)
	}
	err = tryShaping(space, Rule{Peer: peer, Out: true, How: Shape}, s)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel lacks a part that it needs: %w", err)
	}
	return err
}
