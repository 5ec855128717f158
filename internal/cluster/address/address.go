// Package address assigns addresses to the nodes of a run.
package address

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strconv"

	"github.com/lockquake/lockquake/internal/node"
)

// Each run has a /24 of its own: the supervisor or the engine is .1, nodes begin at .10.
const (
	FirstHost = 10
	MaxNodes  = 240
)

// Subnet returns the n-th candidate for the run's network, out of 10.128.0.0/10. The candidates follow from the run's
// id, so that two runs seldom try the same one.
func Subnet(run string, n int) netip.Prefix {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%d", run, n)
	v := h.Sum32()
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(v>>8)%64, byte(v), 0}), 24)
}

// FreeSubnet returns the first candidate from number n on that overlaps none of the networks in use, and its number.
func FreeSubnet(run string, n int, used []netip.Prefix) (netip.Prefix, int, error) {
	for end := n + 256; n < end; n++ {
		p := Subnet(run, n)
		free := true
		for _, u := range used {
			// A route of /8 or shorter, such as the default route of a VPN, is not a network that a run could collide
			// with.
			free = free && (u.Bits() <= 8 || !p.Overlaps(u))
		}
		if free {
			return p, n, nil
		}
	}
	return netip.Prefix{}, n, errors.New("no free subnet in 10.128.0.0/10")
}

// HostPrefixes returns the addresses of this machine's interfaces, each with its prefix length.
func HostPrefixes() []netip.Prefix {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Numbered returns the address with the number in the network.
func Numbered(p netip.Prefix, number int) netip.Addr {
	b := p.Addr().As4()
	b[3] = byte(number)
	return netip.AddrFrom4(b)
}

// PutAll places each node at an address of its own with its standard ports.
func PutAll(specs []node.Spec, p netip.Prefix) node.Place {
	place := node.NewPlace()
	for i, s := range specs {
		Put(place, s, i, p)
	}
	return place
}

// Put places the node of that number.
func Put(place node.Place, s node.Spec, number int, p netip.Prefix) {
	place.Put(s.Name, Numbered(p, FirstHost+number).String())
	for _, port := range s.Ports {
		place.Open(s.Name, port.Name, strconv.Itoa(port.Number))
	}
}

// Reservation keeps the ports of nodes on the loopback address open until each node is started.
type Reservation map[string][]net.Listener // by node

// Loopback places all nodes at 127.0.0.1 with a free port each.
func Loopback(specs []node.Spec) (node.Place, Reservation, error) {
	place, held := node.NewPlace(), Reservation{}
	for _, s := range specs {
		if err := held.Place(place, s); err != nil {
			held.Release()
			return node.Place{}, nil, err
		}
	}
	return place, held, nil
}

// Place places a node at 127.0.0.1 with free ports, and holds them.
func (r Reservation) Place(place node.Place, s node.Spec) error {
	place.Put(s.Name, "127.0.0.1")
	for _, port := range s.Ports {
		l, err := freePort()
		if err != nil {
			return err
		}
		r[s.Name] = append(r[s.Name], l)
		place.Open(s.Name, port.Name, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return nil
}

// freePort listens on a port of 127.0.0.1 below the range of ephemeral ports, so that a restarted node finds it free
// again.
func freePort() (net.Listener, error) {
	const low, high, tries = 20000, 32000, 200
	l, err := net.Listen("tcp4", "127.0.0.1:0") // the kernel's choice is as good a random number as any
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	seed := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	for i := range tries {
		port := low + (seed*7919+i*101)%(high-low)
		if l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d on 127.0.0.1", low, high)
}

// Release frees the ports of the named nodes, or all.
func (r Reservation) Release(names ...string) {
	if len(names) == 0 {
		for name := range r {
			names = append(names, name)
		}
	}
	for _, name := range names {
		for _, l := range r[name] {
			_ = l.Close()
		}
		delete(r, name)
	}
}
