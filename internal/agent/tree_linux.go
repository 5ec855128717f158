package agent

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// tree is the traffic control of ours on one link of one namespace. Its root sorts packets into classes by whom they are for
// and by which faults they are hit. Each class has a chain of one qdisc for each of these faults, so that faults that overlap
// add up. What no fault hits goes by none of them.
//
// It needs htb and u32, which kernels have that have netem. It does without packet filters, which some of those have not.
type tree struct {
	mu      sync.Mutex
	link    int // index of the interface
	faults  [treeFaults]*branch
	peers   []string          // by number - 1
	classes map[uint16]*bough // by minor number
	handle  uint16            // the last major number that was given to a qdisc
	sorted  int               // how often packets were sorted anew
}

const (
	treeMajor  = 0x4c51 // of the root
	treeFaults = 6      // at most on one link at once: bits of a class's number
	treePeers  = 63     // with a class of their own; those beyond share the last
	peerShift  = 8      // where the peer's number begins in a class's, beyond the faults' bits
	treeRoom   = 1 << 20
	// treeRate is what a class may send, in bits per second: more than any link here carries.
	treeRate = 16_000_000_000
	// drainPatience is how long packets under way may take to leave before the rest is dropped with their class.
	drainPatience = time.Second
)

// branch is one fault in a tree.
type branch struct {
	rules   []Rule // none when it is on its way out
	shaping Shaping
	past    Shaped // what its qdiscs in classes that are gone have counted
}

// bough is one class: the major numbers of its qdiscs, by fault.
type bough struct{ qdiscs map[int]uint16 }

// netlinkIn opens the kernel's network configuration in a namespace.
func netlinkIn(space *namespace) (*netlink.Handle, error) {
	h, err := netlink.NewHandleAt(netns.NsHandle(space.fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("talk to the kernel's network: %w", err)
	}
	return h, nil
}

// tree returns the namespace's, new if need be.
func (l *links) tree(space *namespace) *tree {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trees[space.id] == nil {
		l.trees[space.id] = &tree{classes: map[uint16]*bough{}}
	}
	return l.trees[space.id]
}

// add puts a fault into the tree and returns its number.
func (t *tree) add(space *namespace, b *branch) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := netlinkIn(space)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	slot := slices.Index(t.faults[:], nil)
	if slot < 0 {
		return 0, fmt.Errorf("%d faults shape the links of this node already, more is not possible", treeFaults)
	}
	if err := t.plant(h, b.rules); err != nil {
		return 0, err
	}
	t.faults[slot] = b
	if err := t.sort(h); err != nil {
		b.rules = nil
		return 0, errors.Join(err, t.cut(h, slot))
	}
	return slot, nil
}

// take takes a fault out of the tree. What is under way has some time to leave.
func (t *tree) take(space *namespace, slot int) error {
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
	return errors.Join(err, t.cut(h, slot))
}

// number returns a peer's. Where packets are duplicated all peers share one class: newer kernels let a netem that duplicates stand
// beside no other.
func (t *tree) number(peer string) uint16 {
	if t.duplicates() {
		return treePeers
	}
	return uint16(min(slices.Index(t.peers, peer)+1, treePeers))
}

func (t *tree) duplicates() bool {
	return slices.ContainsFunc(t.faults[:], func(b *branch) bool { return b != nil && b.shaping.Duplicate > 0 })
}

// choice is a class that packets may come to, and which ones do.
type choice struct {
	peer   string
	faults uint16 // bit by bit
	ports  []Rule // of those faults that hit some ports only
}

func (t *tree) class(c choice) uint16 { return t.number(c.peer)<<peerShift | c.faults }

// wanted lists the classes: for each peer those faults that hit all packets to it, with each choice of those that hit some ports
// only.
func (t *tree) wanted() []choice {
	var out []choice
	for _, peer := range t.peers {
		var always, sometimes uint16
		rules := map[int]Rule{}
		for slot, b := range t.faults {
			if b == nil {
				continue
			}
			i := slices.IndexFunc(b.rules, func(r Rule) bool { return r.Peer == peer })
			switch {
			case i < 0:
			case b.rules[i].Port == 0 && b.rules[i].PeerPort == 0:
				always |= 1 << slot
			default:
				sometimes |= 1 << slot
				rules[slot] = b.rules[i]
			}
		}
		for some := sometimes; ; some = (some - 1) & sometimes { // every choice, the empty one last
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

// cut takes a fault out: its classes, and the root with the last one. Packets that still wait are dropped.
func (t *tree) cut(h *netlink.Handle, slot int) error {
	t.faults[slot] = nil
	if t.faults == [treeFaults]*branch{} {
		root := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: t.link, Handle: netlink.MakeHandle(treeMajor, 0), Parent: netlink.HANDLE_ROOT})
		link := t.link
		t.link, t.peers, t.handle, t.sorted, t.classes = 0, nil, 0, 0, map[uint16]*bough{}
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

// gone tells that there was nothing to remove.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)
}
