package agent

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// grown is a fault whose packets the kernel shapes.
type grown struct {
	tree  *tree
	space *namespace
	slot  int
}

// growShaping puts a shaping into the tree of a namespace.
func (l *links) growShaping(space *namespace, args FilterArgs) (*grown, error) {
	for _, r := range args.Rules {
		if !r.Out {
			return nil, errors.New("the kernel shapes what a node sends, and nothing else")
		}
	}
	t := l.tree(space)
	slot, err := t.add(space, &branch{rules: args.Rules, shaping: *args.Shaping})
	if err != nil {
		return nil, err
	}
	return &grown{tree: t, space: space, slot: slot}, nil
}

func (g *grown) met(f *Filtered) error {
	s, err := g.tree.count(g.space, g.slot)
	if err == nil {
		f.Shaped, f.Packets = &s, s.Passed+s.Dropped+uint64(s.Waiting)
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

func (g *grown) close() error { return g.tree.take(g.space, g.slot) }

// lookAtTree tells how many faults stand in a namespace's tree, and what is there that none of them accounts for.
func (l *links) lookAtTree(space *namespace) (faults int, strays []string, err error) {
	t := l.tree(space)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.link != 0 {
		strays, err = t.strays(space)
		return t.standing(), strays, err
	}
	stands, err := ownRoot(space)
	if stands {
		strays = append(strays, "traffic control of a link")
	}
	return 0, strays, err
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
