package links

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/clock"
)

// tree is our traffic control on one link of one namespace. Its root sorts packets into classes, by destination and by
// the faults that hit them. Each class has a chain with one qdisc per fault, so that overlapping faults add up. Packets
// that no fault hits pass no class.
//
// Example: redis-1 has a delay of 50 ms to all and a loss of 30 % to redis-2. What it sends to redis-3 is in a class
// with one netem, of 50 ms. What it sends to redis-2 is in a class whose first netem delays, and whose second one
// drops.
//
// It needs htb and u32, which kernels with netem have. It needs no packet filter, which some of those lack.
type tree struct {
	mu      sync.Mutex
	link    int // index of the interface
	faults  [treeFaults]*treeFault
	peers   []string              // by number - 1
	classes map[uint16]*treeClass // by minor number
	handle  uint16                // the last major number given to a qdisc
	sorted  int                   // how often the filters were replaced
}

const (
	treeMajor  = 0x4c51 // of the root
	treeFaults = 6      // at most, on one link at once: bits of a class's number
	treePeers  = 63     // with a class of their own; the rest share the last
	peerShift  = 8      // where the peer's number begins in a class's, beyond the faults' bits
	treeRoom   = 1 << 20
	// treeRate is the rate of a class in bits per second: more than any link here carries.
	treeRate = 16_000_000_000
	// drainPatience is how long queued packets may take to leave before the rest are dropped with their class.
	drainPatience = time.Second
)

// treeFault is one fault in a tree.
type treeFault struct {
	rules   []links.Rule // none once it is being removed
	shaping links.Shaping
	past    links.Shaped // counts of its qdiscs in removed classes
}

// treeClass is one class: the major numbers of its qdiscs, by fault.
type treeClass struct{ qdiscs map[int]uint16 }

// netlinkIn opens the kernel's network configuration in a namespace.
func netlinkIn(space *namespace) (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(space.fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("talk to the kernel's network: %w", err)
	}
	return h, nil
}

// tree returns the namespace's tree, a new one if needed.
func (l *linkFilters) tree(space *namespace) *tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trees[space.id] == nil {
		l.trees[space.id] = &tree{classes: map[uint16]*treeClass{}}
	}
	return l.trees[space.id]
}

// addFault adds a fault to the tree and returns its number.
func (t *tree) addFault(space *namespace, b *treeFault) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := netlinkIn(space)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	slot := slices.Index(t.faults[:], nil)
	if slot < 0 {
		return 0, fmt.Errorf("%d faults already shape the links of this node; more are not possible", treeFaults)
	}
	if err := t.addRoot(h, b.rules); err != nil {
		return 0, err
	}
	t.faults[slot] = b
	if err := t.sort(h); err != nil {
		b.rules = nil
		return 0, errors.Join(err, t.drop(h, slot))
	}
	return slot, nil
}

// removeFault removes a fault from the tree. Queued packets have some time to leave.
func (t *tree) removeFault(space *namespace, slot int) error {
	h, err := netlinkIn(space)
	if err != nil {
		return err
	}
	defer h.Close()
	t.mu.Lock()
	t.faults[slot].rules = nil
	err = t.sort(h)
	t.mu.Unlock()
	for over := clock.Now() + int64(drainPatience); clock.Now() < over; time.Sleep(2 * time.Millisecond) {
		if s, wrong := t.count(space, slot); wrong != nil || s.Waiting == 0 {
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(err, t.drop(h, slot))
}

// number returns a peer's number. If packets are duplicated all peers share one class: newer kernels allow no other
// netem beside one that duplicates.
func (t *tree) number(peer string) uint16 {
	if t.duplicates() {
		return treePeers
	}
	return uint16(min(slices.Index(t.peers, peer)+1, treePeers))
}

func (t *tree) duplicates() bool {
	return slices.ContainsFunc(t.faults[:], func(b *treeFault) bool { return b != nil && b.shaping.Duplicate > 0 })
}

// choice is a class and the packets that get there.
type choice struct {
	peer   string
	faults uint16       // bit by bit
	ports  []links.Rule // of the faults that hit some ports only
}

func (t *tree) class(c choice) uint16 { return t.number(c.peer)<<peerShift | c.faults }

// wanted lists the classes: for each peer the faults that hit all packets to it, with each subset of those that hit
// some ports only.
func (t *tree) wanted() []choice {
	var out []choice
	for _, peer := range t.peers {
		var always, sometimes uint16
		rules := map[int]links.Rule{}
		for slot, b := range t.faults {
			if b == nil {
				continue
			}
			i := slices.IndexFunc(b.rules, func(r links.Rule) bool { return r.Peer == peer })
			switch {
			case i < 0:
			case b.rules[i].Port == 0 && b.rules[i].PeerPort == 0:
				always |= 1 << slot
			default:
				sometimes |= 1 << slot
				rules[slot] = b.rules[i]
			}
		}
		for some := sometimes; ; some = (some - 1) & sometimes { // every subset, the empty one last
			c := choice{peer: peer, faults: always | some}
			for slot := range treeFaults {
				if some&(1<<slot) != 0 {
					c.ports = append(c.ports, rules[slot])
				}
			}
			if c.faults != 0 {
				out = append(out, c)
			}
			if some == 0 {
				break
			}
		}
	}
	return out
}

// drop removes a fault with its classes, and the root with the last one. Packets that still wait are dropped.
func (t *tree) drop(h *netlink.Handle, slot int) error {
	t.faults[slot] = nil
	if t.faults == [treeFaults]*treeFault{} {
		root := netlink.NewHtb(netlink.QdiscAttrs{
			LinkIndex: t.link, Handle: netlink.MakeHandle(treeMajor, 0),
			Parent: netlink.HANDLE_ROOT,
		})
		link := t.link
		t.link, t.peers, t.handle, t.sorted, t.classes = 0, nil, 0, 0, map[uint16]*treeClass{}
		if err := h.QdiscDel(root); err != nil && !gone(err) {
			return fmt.Errorf("remove the traffic control of link %d: %w", link, err)
		}
		return nil
	}
	errs := []error{t.remember(h, slot)}
	for minor := range t.classes {
		if minor&(1<<slot) == 0 {
			continue
		}
		delete(t.classes, minor)
		err := h.ClassDel(netlink.NewHtbClass(netlink.ClassAttrs{
			LinkIndex: t.link, Parent: netlink.MakeHandle(treeMajor, 0), Handle: netlink.MakeHandle(treeMajor, minor),
		}, netlink.HtbClassAttrs{Rate: treeRate}))
		if err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("remove a class of traffic control: %w", err))
		}
	}
	return errors.Join(errs...)
}

// gone reports whether there was nothing to remove.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)
}

// addRoot makes the root, on the link to the peers.
func (t *tree) addRoot(h *netlink.Handle, rules []links.Rule) error {
	link := 0
	for _, r := range rules {
		i, err := linkTo(h, r.Peer)
		if err != nil {
			return err
		}
		if link == 0 {
			link = i
		}
		if i != link || t.link != 0 && i != t.link {
			return fmt.Errorf("%s is reached over another link than others, but traffic is shaped on only one", r.Peer)
		}
		if !slices.Contains(t.peers, r.Peer) {
			t.peers = append(t.peers, r.Peer)
		}
	}
	if t.link != 0 {
		return nil
	}
	if link == 0 {
		return errors.New("no rule selects the packets to shape")
	}
	root, err := rootOf(h, link)
	if err != nil {
		return err
	}
	if root != nil && root.Attrs().Handle == netlink.MakeHandle(treeMajor, 0) { // left by a dead agent
		err = h.QdiscDel(root)
	} else if root != nil && root.Attrs().Handle != 0 && root.Type() != "noqueue" {
		err = fmt.Errorf("the link has traffic control of its own (%s %x:)", root.Type(), root.Attrs().Handle>>16)
	}
	if err != nil {
		return err
	}
	err = h.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: link, Handle: netlink.MakeHandle(treeMajor, 0),
		Parent: netlink.HANDLE_ROOT,
	}))
	if err != nil {
		return fmt.Errorf("make the root of traffic control (htb): %w", err)
	}
	t.link = link
	return nil
}

// linkTo returns the index of the interface on the route to an address.
func linkTo(h *netlink.Handle, address string) (int, error) {
	ip := net.ParseIP(address)
	if ip == nil {
		return 0, fmt.Errorf("%q is not an address", address)
	}
	routes, err := h.RouteGet(ip)
	if err != nil || len(routes) == 0 {
		return 0, fmt.Errorf("find the link to %s: %w", address, err)
	}
	return routes[0].LinkIndex, nil
}

// rootOf returns the root qdisc of a link; nil if there is none.
func rootOf(h *netlink.Handle, link int) (netlink.Qdisc, error) {
	all, err := h.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: link}})
	if err != nil {
		return nil, fmt.Errorf("list the traffic control of the link: %w", err)
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q, nil
		}
	}
	return nil, nil
}

// addClass makes a class with its chain of qdiscs.
func (t *tree) addClass(h *netlink.Handle, minor uint16) error {
	handle := netlink.MakeHandle(treeMajor, minor)
	class := netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: t.link, Parent: netlink.MakeHandle(treeMajor, 0), Handle: handle},
		netlink.HtbClassAttrs{Rate: treeRate, Ceil: treeRate, Buffer: treeRoom, Cbuffer: treeRoom, Quantum: 1 << 16},
	)
	if err := h.ClassAdd(class); err != nil {
		return fmt.Errorf("make a class of traffic control (htb): %w", err)
	}
	b := &treeClass{qdiscs: map[int]uint16{}}
	t.classes[minor] = b
	parent := handle
	for slot, fault := range t.faults {
		if minor&(1<<slot) == 0 {
			continue
		}
		t.handle++
		b.qdiscs[slot] = t.handle
		attrs := netlink.QdiscAttrs{LinkIndex: t.link, Parent: parent, Handle: netlink.MakeHandle(t.handle, 0)}
		if err := h.QdiscAdd(qdiscOf(attrs, fault.shaping)); err != nil {
			if errors.Is(err, unix.EINVAL) && t.duplicates() {
				return fmt.Errorf("this kernel allows no second netem next to one that duplicates packets: %w", err)
			}
			return fmt.Errorf("make a qdisc (%s): %w", fault.shaping.Engine, err)
		}
		parent = netlink.MakeHandle(t.handle, 1)
	}
	return nil
}

// qdiscOf returns the kernel's qdisc for a shaping.
func qdiscOf(a netlink.QdiscAttrs, s links.Shaping) netlink.Qdisc {
	if s.Engine == links.TBF {
		rate := s.Rate / 8
		burst := links.TBFBurst(rate)
		return &netlink.Tbf{
			// 200 ms
			QdiscAttrs: a, Rate: rate, Buffer: netlink.Xmittime(rate, burst),
			Limit: burst + max(uint32(rate/5), 10*1600),
		}
	}
	percent := func(share float64) float32 { return float32(100 * share) }
	return netlink.NewNetem(a, netlink.NetemQdiscAttrs{
		Limit:   treeRoom, // the default of 1000 packets would turn a delay into a loss
		Latency: uint32(s.Delay.Microseconds()), Jitter: uint32(s.Jitter.Microseconds()),
		DelayCorr: percent(s.Correlation),
		Loss:      percent(s.Loss), LossCorr: percent(s.Correlation), Duplicate: percent(s.Duplicate),
		DuplicateCorr: percent(s.Correlation),
		ReorderProb:   percent(s.Reorder), ReorderCorr: percent(s.Correlation), CorruptProb: percent(s.Corrupt),
		CorruptCorr: percent(s.Correlation),
	})
}

// kernelShaping is a fault whose packets the kernel shapes.
type kernelShaping struct {
	tree  *tree
	space *namespace
	slot  int
}

// shapeInKernel adds a shaping to the tree of a namespace.
func (l *linkFilters) shapeInKernel(space *namespace, args links.FilterArgs) (*kernelShaping, error) {
	for _, r := range args.Rules {
		if !r.Out {
			return nil, errors.New("the kernel shapes only outgoing packets")
		}
	}
	t := l.tree(space)
	slot, err := t.addFault(space, &treeFault{rules: args.Rules, shaping: *args.Shaping})
	if err != nil {
		return nil, err
	}
	return &kernelShaping{tree: t, space: space, slot: slot}, nil
}

func (g *kernelShaping) met(f *links.Filtered) error {
	s, err := g.tree.count(g.space, g.slot)
	if err == nil {
		f.Shaped, f.Packets = &s, s.Passed+s.Dropped+uint64(s.Waiting)
	}
	return err
}

// release returns the number of waiting packets. They leave when their time comes: the kernel releases none early.
func (g *kernelShaping) release() int {
	s, err := g.tree.count(g.space, g.slot)
	if err != nil {
		return 0
	}
	return s.Waiting
}

func (g *kernelShaping) close() error { return g.tree.removeFault(g.space, g.slot) }

// lookAtTree returns the number of active faults in a namespace's tree, and the qdiscs that belong to none of them.
func (l *linkFilters) lookAtTree(space *namespace) (faults int, strays []string, err error) {
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
