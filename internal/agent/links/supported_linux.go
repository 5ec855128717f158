package links

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/vishvananda/netlink"
)

// supported returns why packets cannot be filtered and held on this machine; nil if they can. It tries once, in a
// temporary network namespace.
var supported = sync.OnceValue(func() error { return inOwnNamespace(tryFilter) })

// inOwnNamespace runs f on a thread in a new network namespace, which vanishes with the thread and its sockets.
func inOwnNamespace(f func(*namespace) error) error {
	var err error
	proc.OnOwnThread(func() { err = inNewNamespace(f) })
	return err
}

// inNewNamespace leaves the calling thread in the new namespace.
func inNewNamespace(f func(*namespace) error) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	space, err := namespaceAt("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	return errors.Join(f(space), space.close())
}

func tryFilter(space *namespace) error {
	rules := []links.Rule{
		{Peer: "192.0.2.1", How: links.Drop},
		{Peer: "192.0.2.2", How: links.Reject, Out: true},
		{Peer: "192.0.2.3", How: links.Hold},
	}
	f, err := newLinks().newFilter(space, "try", links.FilterArgs{Rules: rules})
	if err != nil {
		return err
	}
	_, err = f.remove()
	return err
}

// tryEngines tries each engine once, in a temporary network namespace.
var tryEngines = sync.OnceValue(func() links.Engines {
	return links.Engines{
		links.Netem: inWords(tryNetem),
		links.Queue: inWords(tryQueue),
		links.TBF:   inWords(tryTBF),
	}
})

func inWords(try func(*namespace) error) string {
	if err := inOwnNamespace(try); err != nil {
		return err.Error()
	}
	return ""
}

// tryQueue installs the shaping rules and queue, without an effect.
func tryQueue(space *namespace) error {
	return tryShaping(space, links.Rule{Peer: "192.0.2.1", How: links.Shape},
		links.Shaping{Engine: links.Queue, Delay: time.Millisecond})
}

func tryShaping(space *namespace, r links.Rule, s links.Shaping) error {
	f, err := newLinks().newFilter(space, "try", links.FilterArgs{Rules: []links.Rule{r}, Shaping: &s})
	if err != nil {
		return err
	}
	_, err = f.remove()
	return err
}

// tryNetem and tryTBF install the shaping rules and tree, without an effect, on a link that leads nowhere.
func tryNetem(space *namespace) error {
	return tryTree(space, links.Shaping{Engine: links.Netem, Delay: time.Millisecond})
}

func tryTBF(space *namespace) error {
	return tryTree(space, links.Shaping{Engine: links.TBF, Rate: 1_000_000})
}

// switchOnLoopback turns on the loopback link of a new namespace, and returns it.
func switchOnLoopback(h *netlink.Handle) (netlink.Link, error) {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find the loopback link: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("switch on the loopback link: %w", err)
	}
	return lo, nil
}

func tryTree(space *namespace, s links.Shaping) error {
	h, err := netlinkIn(space)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := switchOnLoopback(h)
	if err != nil {
		return err
	}
	const peer = "192.0.2.1"
	route := netlink.Route{
		LinkIndex: lo.Attrs().Index,
		Dst:       &net.IPNet{IP: net.ParseIP(peer), Mask: net.CIDRMask(32, 32)},
	}
	if err := h.RouteAdd(&route); err != nil {
		return fmt.Errorf("make a route: %w", err)
	}
	err = tryShaping(space, links.Rule{Peer: peer, Out: true, How: links.Shape}, s)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel lacks a part that it needs: %w", err)
	}
	return err
}
