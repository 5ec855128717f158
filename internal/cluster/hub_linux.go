package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// hub is the network of a local run: one namespace for each node, and one more that holds the bridge which joins them.
// The bridge is not in the supervisor's namespace because there the machine's own packet filter (Docker's, say, which
// drops what is forwarded) would rule over it. The supervisor reaches the bridge by one link, named linkPrefix + run.
//
// Namespaces have no names: they are held open by this process and its children, so the kernel removes them, with the
// bridge and all links, when the last of these is gone, however it went.
type hub struct {
	subnet netip.Prefix
	origin netns.NsHandle // the supervisor's own
	bridge netns.NsHandle
	nodes  []netns.NsHandle
	link   string
}

// hubRequest describes the network to be made.
type hubRequest struct {
	run    string
	tag    string // the owner, written on the supervisor's link
	subnet netip.Prefix
	nodes  int
}

// newHub makes the network on the run's thread. On an error nothing is left behind.
func newHub(t *thread, r hubRequest) (*hub, error) {
	h := &hub{subnet: r.subnet, origin: netns.None(), bridge: netns.None(), link: linkPrefix + r.run}
	err := t.do(func() error {
		var err error
		if h.origin, err = netns.Get(); err != nil {
			return fmt.Errorf("open the own network namespace: %w", err)
		}
		return errors.Join(h.make(r), netns.Set(h.origin))
	})
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// make leaves the thread in another namespace than it began in.
func (h *hub) make(r hubRequest) error {
	var err error
	if h.bridge, err = netns.New(); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	in, err := netlink.NewHandleAt(h.bridge, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("talk to the kernel's network: %w", err)
	}
	defer in.Close()
	bridge := &netlink.Bridge{LinkAttrs: named("br0")}
	if err := in.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	if err := up(in, "br0"); err != nil {
		return err
	}
	gateway := netip.PrefixFrom(hostAddr(h.subnet, 1), h.subnet.Bits())
	err = join(in, end{bridgeEnd: "host", name: h.link, ns: h.origin, addr: gateway, alias: aliasPrefix + r.tag})
	if err != nil {
		return err
	}
	for i := range r.nodes {
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		h.nodes = append(h.nodes, ns)
		addr := netip.PrefixFrom(hostAddr(h.subnet, firstHost+i), h.subnet.Bits())
		if err := join(in, end{bridgeEnd: fmt.Sprintf("n%d", i), name: "eth0", ns: ns, addr: addr}); err != nil {
			return err
		}
	}
	return nil
}

// end is the far end of a link to the bridge.
type end struct {
	bridgeEnd string
	name      string
	ns        netns.NsHandle
	addr      netip.Prefix
	alias     string
}

// join links a namespace to the bridge and gives it its address.
func join(in *netlink.Handle, e end) error {
	br, err := in.LinkByName("br0")
	if err != nil {
		return err
	}
	attrs := named(e.bridgeEnd)
	attrs.MasterIndex = br.Attrs().Index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: e.name, PeerNamespace: netlink.NsFd(int(e.ns))}
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
	if e.alias != "" {
		if err := far.LinkSetAlias(link, e.alias); err != nil {
			return fmt.Errorf("mark the link %s: %w", e.name, err)
		}
	}
	ip := &net.IPNet{IP: e.addr.Addr().AsSlice(), Mask: net.CIDRMask(e.addr.Bits(), 32)}
	if err := far.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("give %s the address %v: %w", e.name, e.addr, err)
	}
	if err := up(far, e.name); err != nil {
		return err
	}
	return up(far, "lo")
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

// close removes the link and lets go of the namespaces.
func (h *hub) close() error {
	err := removeLink(h.link)
	for _, ns := range append(h.nodes, h.bridge, h.origin) {
		if ns.IsOpen() {
			_ = ns.Close()
		}
	}
	h.nodes, h.bridge, h.origin = nil, netns.None(), netns.None()
	return err
}

// removeLink removes a link of the supervisor's namespace, and with it its far end; one that is gone is no error.
func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the link %s: %w", name, err)
	}
	return nil
}

// listTries is how often links are listed anew that changed while they were listed.
const listTries = 20

// markedLinks lists the links of local runs in the supervisor's namespace, by name, with their owners.
func markedLinks() (map[string]owner, error) {
	links, err := netlink.LinkList()
	for tries := 1; errors.Is(err, netlink.ErrDumpInterrupted) && tries < listTries; tries++ { // a link came or went meanwhile
		links, err = netlink.LinkList()
	}
	if err != nil {
		return nil, fmt.Errorf("list the network links: %w", err)
	}
	out := make(map[string]owner)
	for _, l := range links {
		a := l.Attrs()
		tag, marked := strings.CutPrefix(a.Alias, aliasPrefix)
		if o, ok := ownerTag(tag); ok && marked && strings.HasPrefix(a.Name, linkPrefix) {
			out[a.Name] = o
		}
	}
	return out, nil
}
