package agent

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// plant makes the root, on the link by which the peers are reached.
func (t *tree) plant(h *netlink.Handle, rules []Rule) error {
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
			return fmt.Errorf("%s is reached by another link than others: traffic is shaped on one only", r.Peer)
		}
		if !slices.Contains(t.peers, r.Peer) {
			t.peers = append(t.peers, r.Peer)
		}
	}
	if t.link != 0 {
		return nil
	}
	if link == 0 {
		return errors.New("no rule says whose packets are shaped")
	}
	root, err := rootOf(h, link)
	if err != nil {
		return err
	}
	if root != nil && root.Attrs().Handle == netlink.MakeHandle(treeMajor, 0) { // an agent before this one died
		err = h.QdiscDel(root)
	} else if root != nil && root.Attrs().Handle != 0 && root.Type() != "noqueue" {
		err = fmt.Errorf("the link has traffic control of its own (%s %x:)", root.Type(), root.Attrs().Handle>>16)
	}
	if err != nil {
		return err
	}
	err = h.QdiscAdd(netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(treeMajor, 0), Parent: netlink.HANDLE_ROOT}))
	if err != nil {
		return fmt.Errorf("make the root of traffic control (htb): %w", err)
	}
	t.link = link
	return nil
}

// linkTo returns the index of the interface by which an address is reached.
func linkTo(h *netlink.Handle, address string) (int, error) {
	ip := net.ParseIP(address)
	if ip == nil {
		return 0, fmt.Errorf("%q is no address", address)
	}
	routes, err := h.RouteGet(ip)
	if err != nil || len(routes) == 0 {
		return 0, fmt.Errorf("find the link to %s: %w", address, err)
	}
	return routes[0].LinkIndex, nil
}

// rootOf returns the root qdisc of a link; nil when there is none.
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

// grow makes a class with its chain of qdiscs.
func (t *tree) grow(h *netlink.Handle, minor uint16) error {
	handle := netlink.MakeHandle(treeMajor, minor)
	class := netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: t.link, Parent: netlink.MakeHandle(treeMajor, 0), Handle: handle},
		netlink.HtbClassAttrs{Rate: treeRate, Ceil: treeRate, Buffer: treeRoom, Cbuffer: treeRoom, Quantum: 1 << 16},
	)
	if err := h.ClassAdd(class); err != nil {
		return fmt.Errorf("make a class of traffic control (htb): %w", err)
	}
	b := &bough{qdiscs: map[int]uint16{}}
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
				return fmt.Errorf("this kernel lets a netem that duplicates packets stand beside no other on one link: %w", err)
			}
			return fmt.Errorf("make a qdisc (%s): %w", fault.shaping.Engine, err)
		}
		parent = netlink.MakeHandle(t.handle, 1)
	}
	return nil
}

// qdiscOf is a shaping as the kernel's.
func qdiscOf(a netlink.QdiscAttrs, s Shaping) netlink.Qdisc {
	if s.Engine == EngineTBF {
		rate := s.Rate / 8
		burst := max(uint32(rate/100), 2*1600) // 10 ms
		return &netlink.Tbf{
			QdiscAttrs: a, Rate: rate, Buffer: netlink.Xmittime(rate, burst), Limit: burst + max(uint32(rate/5), 10*1600), // 200 ms
		}
	}
	percent := func(share float64) float32 { return float32(100 * share) }
	return netlink.NewNetem(a, netlink.NetemQdiscAttrs{
		Limit:   treeRoom, // by default 1000 packets, beyond which a delay is a loss
		Latency: uint32(s.Delay.Microseconds()), Jitter: uint32(s.Jitter.Microseconds()), DelayCorr: percent(s.Correlation),
		Loss: percent(s.Loss), LossCorr: percent(s.Correlation), Duplicate: percent(s.Duplicate), DuplicateCorr: percent(s.Correlation),
		ReorderProb: percent(s.Reorder), ReorderCorr: percent(s.Correlation), CorruptProb: percent(s.Corrupt), CorruptCorr: percent(s.Correlation),
	})
}
