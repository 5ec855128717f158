package netspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/cluster/address"
)

// Hub is the network of a local run: one namespace for each node, and one more for the bridge that joins them. The
// bridge is not in the supervisor's namespace. There the machine's own packet filter would apply (Docker's drops
// forwarded packets), and every user of the machine could reach the nodes. No link leads out of the network: the
// supervisor dials from within the bridge's namespace, and a node reaches only the other nodes.
//
// The namespaces have no names: this process and its children hold them open. So the kernel removes them, with the
// bridge and all links, when the last of these processes ends, in whatever way.
type Hub struct {
	Subnet netip.Prefix
	tag    string         // the owner's, on the link of each node, by which Sweep recognizes the namespace
	origin netns.NsHandle // the supervisor's own
	bridge netns.NsHandle
	nodes  []netns.NsHandle

	dialing sync.RWMutex // held for reading during a dial, so that bridge is not closed meanwhile
}

// NewHub makes the network, on the run's thread. On an error nothing is left behind.
func NewHub(t *Thread, subnet netip.Prefix, nodes int, tag string) (*Hub, error) {
	h := &Hub{Subnet: subnet, tag: tag, origin: netns.None(), bridge: netns.None()}
	err := t.Do(func() error {
		var err error
		if h.origin, err = netns.Get(); err != nil {
			return fmt.Errorf("open the own network namespace: %w", err)
		}
		return errors.Join(h.make(nodes), netns.Set(h.origin))
	})
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// make makes the bridge and the namespaces. It leaves the thread in another namespace.
func (h *Hub) make(nodes int) error {
	var err error
	if h.bridge, err = netns.New(); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	in, err := netlink.NewHandleAt(h.bridge, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("talk to the kernel's network: %w", err)
	}
	defer in.Close()
	own := address.Numbered(h.Subnet, 1)
	bridge := &netlink.Bridge{LinkAttrs: named("br0")}
	bridge.HardwareAddr = hardware(own) // otherwise it would change as nodes come and go
	if err := in.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	if err := up(in, "br0"); err != nil {
		return err
	}
	if err := assign(in, bridge, netip.PrefixFrom(own, h.Subnet.Bits())); err != nil {
		return err
	}
	return h.addNamespaces(in, nodes)
}

// addNamespaces makes namespaces until there is one for each node.
func (h *Hub) addNamespaces(in *netlink.Handle, nodes int) error {
	for i := len(h.nodes); i < nodes; i++ {
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		h.nodes = append(h.nodes, ns)
		addr := netip.PrefixFrom(address.Numbered(h.Subnet, address.FirstHost+i), h.Subnet.Bits())
		if err := join(in, end{bridgeEnd: bridgeEnd(i), name: Link, alias: h.tag, ns: ns, addr: addr}); err != nil {
			return err
		}
	}
	return nil
}

// Renew replaces the namespaces from that number on, so that there is one for each node.
func (h *Hub) Renew(t *Thread, from, nodes int) error {
	return t.Do(func() error {
		in, err := netlink.NewHandleAt(h.bridge, unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("talk to the kernel's network: %w", err)
		}
		defer in.Close()
		for i := from; i < len(h.nodes); i++ {
			// Without this the link would vanish only some time after its namespace.
			if err := in.LinkDel(&netlink.GenericLink{LinkAttrs: named(bridgeEnd(i))}); err != nil {
				return fmt.Errorf("remove the link %s: %w", bridgeEnd(i), err)
			}
			_ = h.nodes[i].Close()
		}
		h.nodes = h.nodes[:from]
		return errors.Join(h.addNamespaces(in, nodes), netns.Set(h.origin))
	})
}

// Link is the node's end of its link.
const Link = "eth0"

// Network returns the name of a node's namespace in /proc; "" for the supervisor's own.
func (h *Hub) Network(node int) string {
	var st unix.Stat_t
	if h == nil || node < 0 || unix.Fstat(int(h.nodes[node]), &st) != nil {
		return ""
	}
	return fmt.Sprintf("net:[%d]", st.Ino)
}

// bridgeEnd returns the name of the bridge's end of a node's link.
func bridgeEnd(node int) string { return fmt.Sprintf("n%d", node) }

// hardware returns the hardware address for an IP address. Consecutive nodes with the same IP address must share it, or
// the neighbour tables of the other nodes would be wrong.
func hardware(a netip.Addr) net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0x42}, a.AsSlice()...)
}

// end is the far end of a link to the bridge.
type end struct {
	bridgeEnd string
	name      string
	alias     string
	ns        netns.NsHandle
	addr      netip.Prefix
}

// join links a namespace to the bridge and gives it its address.
func join(in *netlink.Handle, e end) error {
	br, err := in.LinkByName("br0")
	if err != nil {
		return err
	}
	attrs := named(e.bridgeEnd)
	attrs.MasterIndex = br.Attrs().Index
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: e.name, PeerNamespace: netlink.NsFd(int(e.ns)),
		PeerHardwareAddr: hardware(e.addr.Addr()),
	}
	if err := in.LinkAdd(veth); err != nil {
		return fmt.Errorf("make the link %s: %w", e.name, err)
	}
	if err := up(in, e.bridgeEnd); err != nil {
		return err
	}
	far, err := netlink.NewHandleAt(e.ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("talk to the kernel's network: %w", err)
	}
	defer far.Close()
	link, err := far.LinkByName(e.name)
	if err != nil {
		return fmt.Errorf("find the link %s: %w", e.name, err)
	}
	if err := far.LinkSetAlias(link, e.alias); err != nil {
		return fmt.Errorf("mark the link %s: %w", e.name, err)
	}
	if err := assign(far, link, e.addr); err != nil {
		return err
	}
	if err := up(far, e.name); err != nil {
		return err
	}
	return up(far, "lo")
}

func assign(h *netlink.Handle, link netlink.Link, addr netip.Prefix) error {
	ip := &net.IPNet{IP: addr.Addr().AsSlice(), Mask: net.CIDRMask(addr.Bits(), 32)}
	if err := h.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("give %s the address %v: %w", link.Attrs().Name, addr, err)
	}
	return nil
}

// Dial connects to a node from within the bridge's namespace, on a thread that ends afterwards: a socket stays in the
// namespace in which it was made.
func (h *Hub) Dial(ctx context.Context, d net.Dialer, addr string) (conn net.Conn, err error) {
	h.dialing.RLock()
	defer h.dialing.RUnlock()
	t := NewThread()
	defer t.Close()
	err = t.Do(func() error {
		if err := netns.Set(h.bridge); err != nil {
			return fmt.Errorf("enter the run's network: %w", err)
		}
		conn, err = d.DialContext(ctx, "tcp", addr)
		return err
	})
	return conn, err
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func up(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("switch on the link %s: %w", name, err)
	}
	return nil
}

// Enter moves the calling thread into the namespace of a node; back moves it back into the supervisor's.
func (h *Hub) Enter(node int) (back func() error, err error) {
	return func() error { return netns.Set(h.origin) }, netns.Set(h.nodes[node])
}

// Close closes the namespaces.
func (h *Hub) Close() {
	h.dialing.Lock()
	defer h.dialing.Unlock()
	for _, ns := range append(h.nodes, h.bridge, h.origin) {
		if ns.IsOpen() {
			_ = ns.Close()
		}
	}
	h.nodes, h.bridge, h.origin = nil, netns.None(), netns.None()
}
