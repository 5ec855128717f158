package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
)

// hub is the network of a local run: one namespace for each node, and one more that holds the bridge which joins them.
// The bridge is not in the supervisor's namespace: there the machine's own packet filter (Docker's, say, which
// drops what is forwarded) would rule over it, and every user of the machine could reach the nodes. No link leads out of the network: the
// supervisor dials from within the bridge's namespace, and a node reaches nothing but the other nodes.
//
// Namespaces have no names: they are held open by this process and its children, so the kernel removes them, with the
// bridge and all links, when the last of these is gone, however it went.
type hub struct {
	subnet netip.Prefix
	tag    string         // the owner's; it stands at the link of each node, by which Sweep knows the namespace
	origin netns.NsHandle // the supervisor's own
	bridge netns.NsHandle
	nodes  []netns.NsHandle

	dialing sync.RWMutex // held for reading during a dial, so that bridge is not closed meanwhile
}

// newHub makes the network on the run's thread. On an error nothing is left behind.
func newHub(t *thread, subnet netip.Prefix, nodes int, tag string) (*hub, error) {
	h := &hub{subnet: subnet, tag: tag, origin: netns.None(), bridge: netns.None()}
	err := t.do(func() error {
		var err error
		if h.origin, err = netns.Get(); err != nil {
			return fmt.Errorf("open the own network namespace: %w", err)
		}
		return errors.Join(h.make(nodes), netns.Set(h.origin))
	})
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// make leaves the thread in another namespace than it began in.
func (h *hub) make(nodes int) error {
	var err error
	if h.bridge, err = netns.New(); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	in, err := netlink.NewHandleAt(h.bridge, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("talk to the kernel's network: %w", err)
	}
	defer in.Close()
	own := hostAddr(h.subnet, 1)
	bridge := &netlink.Bridge{LinkAttrs: named("br0")}
	bridge.HardwareAddr = hardware(own) // else it would take another whenever nodes come and go
	if err := in.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	if err := up(in, "br0"); err != nil {
		return err
	}
	if err := address(in, bridge, netip.PrefixFrom(own, h.subnet.Bits())); err != nil {
		return err
	}
	return h.addNamespaces(in, nodes)
}

// addNamespaces makes namespaces until there is one for each node.
func (h *hub) addNamespaces(in *netlink.Handle, nodes int) error {
	for i := len(h.nodes); i < nodes; i++ {
		ns, err := netns.New()
		if err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		h.nodes = append(h.nodes, ns)
		addr := netip.PrefixFrom(hostAddr(h.subnet, firstHost+i), h.subnet.Bits())
		if err := join(in, end{bridgeEnd: bridgeEnd(i), name: nodeLink, alias: h.tag, ns: ns, addr: addr}); err != nil {
			return err
		}
	}
	return nil
}

// renew replaces the namespaces from that number on, so that there is one for each node.
func (h *hub) renew(t *thread, from, nodes int) error {
	return t.do(func() error {
		in, err := netlink.NewHandleAt(h.bridge, unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("talk to the kernel's network: %w", err)
		}
		defer in.Close()
		for i := from; i < len(h.nodes); i++ {
			// By itself the link would go only some time after its namespace.
			if err := in.LinkDel(&netlink.GenericLink{LinkAttrs: named(bridgeEnd(i))}); err != nil {
				return fmt.Errorf("remove the link %s: %w", bridgeEnd(i), err)
			}
			_ = h.nodes[i].Close()
		}
		h.nodes = h.nodes[:from]
		return errors.Join(h.addNamespaces(in, nodes), netns.Set(h.origin))
	})
}

// nodeLink is the node's end of its link.
const nodeLink = "eth0"

// network names the namespace of a node as /proc does; "" for the supervisor's own.
func (h *hub) network(node int) string {
	var st unix.Stat_t
	if h == nil || node < 0 || unix.Fstat(int(h.nodes[node]), &st) != nil {
		return ""
	}
	return fmt.Sprintf("net:[%d]", st.Ino)
}

// bridgeEnd is the bridge's end of a node's link.
func bridgeEnd(node int) string { return fmt.Sprintf("n%d", node) }

// hardware returns the hardware address for an IP address. It is the same for all nodes that have the address one after another, or the
// neighbour tables of the other nodes would be wrong.
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
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: e.name, PeerNamespace: netlink.NsFd(int(e.ns)), PeerHardwareAddr: hardware(e.addr.Addr())}
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
	if err := address(far, link, e.addr); err != nil {
		return err
	}
	if err := up(far, e.name); err != nil {
		return err
	}
	return up(far, "lo")
}

func address(h *netlink.Handle, link netlink.Link, addr netip.Prefix) error {
	ip := &net.IPNet{IP: addr.Addr().AsSlice(), Mask: net.CIDRMask(addr.Bits(), 32)}
	if err := h.AddrAdd(link, &netlink.Addr{IPNet: ip}); err != nil {
		return fmt.Errorf("give %s the address %v: %w", link.Attrs().Name, addr, err)
	}
	return nil
}

// dial connects to a node from within the bridge's namespace, on a thread that ends with it: a socket stays in the namespace that it was made in.
func (h *hub) dial(ctx context.Context, addr string) (conn net.Conn, err error) {
	h.dialing.RLock()
	defer h.dialing.RUnlock()
	t := newThread()
	defer t.close()
	err = t.do(func() error {
		if err := netns.Set(h.bridge); err != nil {
			return fmt.Errorf("enter the run's network: %w", err)
		}
		conn, err = dialer.DialContext(ctx, "tcp", addr)
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

// close closes the namespaces.
func (h *hub) close() {
	h.dialing.Lock()
	defer h.dialing.Unlock()
	for _, ns := range append(h.nodes, h.bridge, h.origin) {
		if ns.IsOpen() {
			_ = ns.Close()
		}
	}
	h.nodes, h.bridge, h.origin = nil, netns.None(), netns.None()
}

// thread is a system thread of our own. All children of a run are started from it, for two reasons: a child takes the
// network namespace of the thread that starts it, and the kernel kills it when that thread ends, which must therefore
// live as long as the run.
type thread struct {
	jobs chan func()
	done chan struct{}
}

func newThread() *thread {
	t := &thread{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		proc.OnOwnThread(func() {
			for job := range t.jobs {
				job()
			}
		})
	}()
	return t
}

// do runs f on the thread.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	t.jobs <- func() { result <- f() }
	return <-result
}

func (t *thread) close() {
	close(t.jobs)
	<-t.done
}

// confine permanently prevents what the thread starts from gaining rights: it sets no_new_privs and empties the bounding set of capabilities. Servers
// run as another user and have none. Without CAP_SETPCAP the bounding set stays as it is; no_new_privs alone suffices.
func (t *thread) confine() error {
	return t.do(func() error {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		for c := uintptr(0); ; c++ {
			switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); {
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM): // that was the last one
				return nil
			case err != nil:
				return fmt.Errorf("drop capability %d: %w", c, err)
			}
		}
	})
}

// start starts a command in its placement. If the thread cannot leave that again, the child is killed: others would start there too.
func (t *thread) start(cmd *exec.Cmd, s placement) error {
	return t.do(func() error {
		back, err := s.enter(cmd)
		if err == nil {
			err = cmd.Start()
		}
		lost := back()
		if err == nil && lost != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return errors.Join(err, lost)
	})
}

// placement is where a child belongs: in a node's network namespace (the supervisor's own for node -1 or without hub), and in
// a control group where it has limits.
type placement struct {
	hub   *hub
	node  int
	group *group // nil: no limits
}

// enter moves the calling thread there; back, never nil, moves it back, also after an error.
func (s placement) enter(cmd *exec.Cmd) (back func() error, err error) {
	var undo []func() error
	back = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if s.group != nil {
		leave, err := s.group.enter(cmd)
		undo = append(undo, leave)
		if err != nil {
			return back, err
		}
	}
	if s.hub == nil || s.node < 0 {
		return back, nil
	}
	undo = append(undo, func() error { return netns.Set(s.hub.origin) })
	return back, netns.Set(s.hub.nodes[s.node])
}

// childAttributes makes the kernel kill the child when the supervisor is gone, stopped or not.
func childAttributes(survives bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if !survives {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
