package links

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

const (
	// shakeMost bounds the connections of one measurement, over all peers.
	shakeMost = 5000
	// shakeHold is how long an answered connection is kept open for a possible second answer.
	shakeHold = 20 * time.Millisecond
	// shakePoll is how often answered connections are checked.
	shakePoll = 5 * time.Millisecond
	// burstPort is the destination port of bursts: that of the discard protocol. With a time to live of one they get no
	// further than the next hop.
	burstPort, burstHops = 9, 1
)

// doShake opens connections from a process's namespace to external servers, and closes them at once. Only the answers
// of the servers' kernels say anything about such a link.
func doShake(ctx context.Context, c agent.Call, args links.ShakeArgs) (any, error) {
	if n := args.Count * len(args.Peers); args.Count < 1 || n > shakeMost {
		return nil, fmt.Errorf("%d connections to each of %d peers: want 1 to %d in all", args.Count, len(args.Peers),
			shakeMost)
	}
	s := &shaker{args: args}
	for _, p := range args.Peers {
		at, err := netip.ParseAddrPort(p)
		if err != nil || !at.Addr().Is4() {
			return nil, fmt.Errorf("%q is not an IPv4 address with a port", p)
		}
		s.peers = append(s.peers, &shakenPeer{at: at, gaugeFlow: gaugeFlow{
			sent:    make([]int64, args.Count),
			arrived: make([]int64, args.Count),
		}})
	}
	space, err := openNamespace(c.Process)
	if err != nil {
		return nil, err
	}
	var out links.Shaken
	err = space.do(func() (err error) { out, err = s.run(ctx); return err })
	return out, errors.Join(err, space.close())
}

// shaker opens connections on a thread inside a namespace.
type shaker struct {
	args  links.ShakeArgs
	peers []*shakenPeer
	open  []*shake
	burst int // socket of the bursts
}

// shakenPeer has the connections to one peer; arrived has the times of their answers.
type shakenPeer struct {
	at netip.AddrPort
	gaugeFlow
	refused int
}

// shake is one connection.
type shake struct {
	peer   *shakenPeer
	number int
	socket int
	until  int64 // time of the answer plus shakeHold; 0: unanswered
}

func (s *shaker) run(ctx context.Context) (links.Shaken, error) {
	s.burst = -1
	defer s.close()
	before, err := wrongChecksums()
	if err == nil && s.args.Burst > 0 {
		err = s.openBurst()
	}
	if err != nil {
		return links.Shaken{}, err
	}
	begin, begun := clock.Now(), 0
	due := func() int64 { return begin + int64(begun)*int64(s.args.Every) }
	for end := int64(0); begun < s.args.Count || len(s.open) > 0 && clock.Now() < end; {
		if ctx.Err() != nil {
			return links.Shaken{}, ctx.Err()
		}
		for ; begun < s.args.Count && due() <= clock.Now(); begun++ {
			for _, p := range s.peers {
				if err := s.begin(p, begun); err != nil {
					return links.Shaken{}, err
				}
			}
			end = clock.Now() + int64(s.args.Patience)
		}
		wait := int64(shakePoll)
		if begun < s.args.Count {
			wait = min(wait, max(due()-clock.Now(), 0))
		}
		s.poll(wait)
	}
	s.poll(0) // answers that came while this process was descheduled
	after, err := wrongChecksums()
	if err != nil {
		return links.Shaken{}, err
	}
	var out links.Shaken
	for _, p := range s.peers {
		f := p.describe(0)
		f.Round, f.Refused, f.Damaged = f.OneWay, p.refused, after-before
		out.Peers = append(out.Peers, f)
	}
	return out, nil
}

// openBurst makes the socket of bursts, with a buffer for a whole one.
func (s *shaker) openBurst() (err error) {
	if s.burst, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	if err = unix.SetsockoptInt(s.burst, unix.IPPROTO_IP, unix.IP_TTL, burstHops); err == nil {
		err = unix.SetsockoptInt(s.burst, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4*s.args.Burst)
	}
	return err
}

// begin opens a connection, behind a burst of datagrams if asked for.
func (s *shaker) begin(p *shakenPeer, number int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	datagram, port := make([]byte, links.BurstSize), int(p.at.Port())
	if !s.args.OnPort {
		port = burstPort
	}
	for left := s.args.Burst; left > 0; left -= links.BurstSize + wireHead {
		// a refused one just does not leave
		_ = unix.Sendto(s.burst, datagram, 0, &unix.SockaddrInet4{Addr: p.at.Addr().As4(), Port: port})
	}
	p.sent[number] = clock.Now()
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: p.at.Addr().As4(), Port: int(p.at.Port())})
	if err != nil && !errors.Is(err, unix.EINPROGRESS) {
		if errors.Is(err, unix.ECONNREFUSED) {
			p.refused++
		}
		return unix.Close(fd)
	}
	s.open = append(s.open, &shake{peer: p, number: number, socket: fd})
	return nil
}

// poll waits for answers, and closes the finished connections.
func (s *shaker) poll(wait int64) {
	var fds []unix.PollFd
	var asked []*shake
	for _, c := range s.open {
		if c.until == 0 {
			fds, asked = append(fds, unix.PollFd{Fd: int32(c.socket), Events: unix.POLLOUT}), append(asked, c)
		}
	}
	limit := unix.NsecToTimespec(wait)
	_, _ = unix.Ppoll(fds, &limit, nil) // interrupted: nothing is ready yet
	now := clock.Now()
	for i, fd := range fds {
		if fd.Revents != 0 {
			asked[i].answered(now)
		}
	}
	kept := s.open[:0]
	for _, c := range s.open {
		if c.until != 0 && c.until <= now {
			c.done()
			continue
		}
		kept = append(kept, c)
	}
	s.open = kept
}

// answered records an answer. If this end's kernel had to retransmit, the first try was lost.
func (c *shake) answered(now int64) {
	c.until = now + int64(shakeHold)
	code, err := unix.GetsockoptInt(c.socket, unix.SOL_SOCKET, unix.SO_ERROR)
	info, wrong := unix.GetsockoptTCPInfo(c.socket, unix.IPPROTO_TCP, unix.TCP_INFO)
	switch {
	case err != nil || wrong != nil:
	case code == int(unix.ECONNREFUSED):
		c.peer.refused++
	case code == 0 && info.Total_retrans == 0:
		c.peer.arrived[c.number] = now
		c.peer.seen++
	}
}

// done counts answers beyond the first, and closes the connection.
func (c *shake) done() {
	const closeWait = 8 // of the kernel's states: the server has closed the connection, by a segment of its own
	info, err := unix.GetsockoptTCPInfo(c.socket, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err == nil && c.peer.arrived[c.number] != 0 {
		expected := 1 + info.Data_segs_in
		if info.State == closeWait {
			expected++
		}
		if info.Segs_in > expected {
			c.peer.copies++
		}
	}
	_ = unix.Close(c.socket)
}

func (s *shaker) close() {
	for _, c := range s.open {
		_ = unix.Close(c.socket)
	}
	if s.burst >= 0 {
		_ = unix.Close(s.burst)
	}
}
