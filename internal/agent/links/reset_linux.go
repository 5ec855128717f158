package links

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

// tcpEstablished is TCP_ESTABLISHED of include/net/tcp_states.h.
const tcpEstablished = 1

// doConnections lists the established connections of a process's network namespace.
func doConnections(_ context.Context, c agent.Call, args links.ConnectionsArgs) (any, error) {
	var out []links.Connection
	err := inNamespaceOf(c, func() error {
		all, err := established()
		out = slices.DeleteFunc(all, func(one links.Connection) bool {
			return !slices.ContainsFunc(args.With, func(r links.Rule) bool {
				return r.Peer == one.Peer && (r.Port == 0 || r.Port == one.Port) &&
					(r.PeerPort == 0 || r.PeerPort == one.PeerPort)
			})
		})
		return err
	})
	return out, err
}

// doReset ends connections: both ends get a reset segment, as from a middlebox. What cannot be reset like that is
// aborted by the kernel at this end.
func doReset(_ context.Context, c agent.Call, those []links.Connection) (any, error) {
	var out links.Ended
	err := inNamespaceOf(c, func() error {
		var err error
		out, err = endAll(those)
		return err
	})
	return out, err
}

func inNamespaceOf(c agent.Call, f func() error) error {
	space, err := openNamespace(c.Process)
	if err != nil {
		return err
	}
	return errors.Join(space.do(f), space.close())
}

// established lists the connections of the thread's namespace from the kernel's socket diagnosis. A socket for IPv6 may
// have a peer with an IPv4 address, as in Java.
func established() ([]links.Connection, error) {
	var out []links.Connection
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := tcpSockets(family)
		if err != nil {
			return nil, fmt.Errorf("list the connections: %w", err)
		}
		for _, s := range all {
			own, peer := s.ID.Source.To4(), s.ID.Destination.To4()
			if s.State == tcpEstablished && own != nil && peer != nil {
				out = append(out, links.Connection{
					Own: own.String(), Peer: peer.String(), Port: s.ID.SourcePort, PeerPort: s.ID.DestinationPort,
					Cookie: cookieOf(s),
				})
			}
		}
	}
	return out, nil
}

func cookieOf(s *netlink.Socket) uint64 { return uint64(s.ID.Cookie[1])<<32 | uint64(s.ID.Cookie[0]) }

// tcpSockets returns the sockets of one address family. It retries when a change interrupted the dump.
func tcpSockets(family uint8) (all []*netlink.Socket, err error) {
	for range 10 {
		if all, err = netlink.SocketDiagTCP(family); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// endAll ends the given connections of the thread's namespace that still exist.
func endAll(those []links.Connection) (links.Ended, error) {
	var out links.Ended
	open, err := descriptors()
	if err != nil {
		return out, fmt.Errorf("look for the sockets: %w", err)
	}
	for _, c := range those {
		was, err := isEstablished(c)
		if err != nil {
			return out, err
		}
		if !was {
			continue
		}
		forged := forgeResets(c, open[c.Cookie])
		if forged == nil {
			out.Reset++
			continue
		}
		switch aborted, err := abort(c); {
		case err != nil:
			return out, err
		case aborted:
			out.Aborted, out.Why = out.Aborted+1, forged.Error()
		}
	}
	return out, nil
}

func isEstablished(c links.Connection) (bool, error) {
	all, err := established()
	return slices.Contains(all, c), err
}

// abort makes the kernel end a connection of the thread's namespace. The other end gets a reset; at this end calls fail
// with ECONNABORTED.
func abort(c links.Connection) (bool, error) {
	own, peer := net.TCPAddr{IP: net.ParseIP(c.Own), Port: int(c.Port)},
		net.TCPAddr{IP: net.ParseIP(c.Peer), Port: int(c.PeerPort)}
	err := netlink.SocketDestroy(&own, &peer)
	if errors.Is(err, unix.ENOENT) { // it ended meanwhile
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("end the connection of %v with %v: %w", &own, &peer, err)
	}
	return true, nil
}

// canReset returns why connections cannot be reset on this machine, or nil. It tries once, in a temporary network
// namespace: the kernel must have CONFIG_INET_DIAG_DESTROY.
var canReset = sync.OnceValue(func() error { return inOwnNamespace(tryReset) })

func tryReset(space *namespace) error {
	h, err := netlinkIn(space)
	if err != nil {
		return err
	}
	defer h.Close()
	if _, err := switchOnLoopback(h); err != nil {
		return err
	}
	one, other, err := connected("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _, _ = one.Close(), other.Close() }()
	all, err := established()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("the kernel does not list a new connection")
	}
	if aborted, err := abort(all[0]); err != nil || !aborted {
		return errors.Join(err, errors.New("a connection did not end: the kernel needs CONFIG_INET_DIAG_DESTROY"))
	}
	for _, c := range []net.Conn{one, other} {
		_ = c.SetReadDeadline(clock.Time(clock.Now() + int64(time.Second)))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.ECONNABORTED) {
			return fmt.Errorf("an end of a reset connection reports %w", err)
		}
	}
	return nil
}

// connected returns both ends of a connection to an address of the thread's namespace.
func connected(address string) (one, other net.Conn, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	if one, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if other, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(err, one.Close())
	}
	return one, other, nil
}
