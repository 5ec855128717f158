package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

const (
	// probeEvery is the pause between two datagrams on one link; a link that loses some shows itself all the same.
	probeEvery = 20 * time.Millisecond
	// probeLeast is how many datagrams must be missed, however late this process is given the processor.
	probeLeast = 5
	// dialPatience is how long a connection is waited for.
	dialPatience = time.Second
)

// doProbe sends datagrams between a process's namespace and those of its peers.
func doProbe(ctx context.Context, c call) (any, error) {
	args, err := decode[ProbeArgs](c.args)
	if err != nil {
		return nil, err
	}
	if len(args.Peers) != len(c.with) {
		return nil, fmt.Errorf("%d addresses for %d peers", len(args.Peers), len(c.with))
	}
	p := &probe{args: args}
	defer p.close()
	if err := p.open(c.process, c.with); err != nil {
		return nil, err
	}
	return p.run(ctx)
}

// probe is one use of doProbe.
type probe struct {
	args  ProbeArgs
	self  *end
	peers []*end
}

// end is the agent's sockets in one namespace.
type end struct {
	space    *namespace
	packets  *net.UDPConn
	listener net.Listener // what is dialled; the kernel completes the connections

	mu      sync.Mutex
	arrived map[string]int64 // by the datagram's text: when the first one came
}

func (p *probe) open(target Process, peers []Process) error {
	var err error
	if p.self, err = newEnd(target, p.args.ProbeEnd); err != nil {
		return fmt.Errorf("probe from %s: %w", p.args.Address, err)
	}
	for i, peer := range peers {
		e, err := newEnd(peer, p.args.Peers[i])
		if err != nil {
			return fmt.Errorf("probe from %s: %w", p.args.Peers[i].Address, err)
		}
		p.peers = append(p.peers, e)
	}
	return nil
}

func (p *probe) close() {
	for _, e := range append(p.peers, p.self) {
		if e != nil {
			e.close()
		}
	}
}

func newEnd(of Process, at ProbeEnd) (*end, error) {
	host, err := netip.ParseAddr(at.Address)
	if err != nil {
		return nil, err
	}
	space, err := openNamespace(of)
	if err != nil {
		return nil, err
	}
	e := &end{space: space, arrived: make(map[string]int64)}
	err = space.do(func() error {
		var err error
		if e.packets, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, at.Port))); err != nil {
			return err
		}
		e.listener, err = net.Listen("tcp4", net.JoinHostPort(at.Address, "0"))
		return err
	})
	if err != nil {
		e.close()
		return nil, err
	}
	go e.receive()
	return e, nil
}

func (e *end) close() {
	if e.packets != nil {
		_ = e.packets.Close()
	}
	if e.listener != nil {
		_ = e.listener.Close()
	}
	_ = e.space.close()
}

func (e *end) receive() {
	b := make([]byte, 64)
	for {
		n, _, err := e.packets.ReadFromUDPAddrPort(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // the echo of a datagram that was refused
		}
		e.mu.Lock()
		if text := string(b[:n]); e.arrived[text] == 0 {
			e.arrived[text] = clock.Now()
		}
		e.mu.Unlock()
	}
}

func (e *end) at(text string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.arrived[text]
}

func (e *end) address() netip.AddrPort { return e.packets.LocalAddr().(*net.UDPAddr).AddrPort() }

// flow is one direction of one link.
type flow struct {
	from, to *end
	text     string
	first    int64 // when it was first sent
	arrival  Arrival
}

// run sends until everything has arrived, or patience is over.
func (p *probe) run(ctx context.Context) (ProbeResult, error) {
	this := clock.Now() // what a probe before this one sent may still be under way
	flows := []*flow{{from: p.self, to: p.self, text: fmt.Sprintf("%d self", this)}}
	for i, e := range p.peers {
		flows = append(flows,
			&flow{from: p.self, to: e, text: fmt.Sprintf("%d out %d", this, i)},
			&flow{from: e, to: p.self, text: fmt.Sprintf("%d in %d", this, i)})
	}
	out := ProbeResult{}
	var beside sync.WaitGroup
	if p.args.Control != "" {
		beside.Go(func() {
			if said, _ := p.self.dial(ctx, p.args.Control); said != Connected {
				out.Control = said
			}
		})
	}
	for i, f := range flows[1:] {
		if outward := i%2 == 0; outward && p.args.DialOut || !outward && p.args.DialIn {
			beside.Go(func() { f.arrival.Dial, f.arrival.Took = f.from.dial(ctx, f.to.listener.Addr().String()) })
		}
	}
	over := clock.Now() + int64(p.args.Patience)
	for round := 0; missing(flows) && ctx.Err() == nil && (round < probeLeast || clock.Now() < over); round++ {
		p.round(ctx, flows)
	}
	beside.Wait()
	out.Self = flows[0].arrival.Arrived
	for i := range p.peers {
		out.Peers = append(out.Peers, Seen{Out: flows[1+2*i].arrival, In: flows[2+2*i].arrival})
	}
	return out, ctx.Err()
}

// round sends a datagram on every flow on which none has arrived yet, and waits a while for arrivals.
func (p *probe) round(ctx context.Context, flows []*flow) {
	for _, f := range flows {
		if f.arrival.Arrived {
			continue
		}
		if f.first == 0 {
			f.first = clock.Now()
		}
		f.arrival.Sent++
		_, _ = f.from.packets.WriteToUDPAddrPort([]byte(f.text), f.to.address()) // one that is refused does not arrive, that is all
	}
	const looks = 20
	for range looks {
		for _, f := range flows {
			if at := f.to.at(f.text); at != 0 && !f.arrival.Arrived {
				f.arrival.Arrived, f.arrival.After = true, time.Duration(at-f.first)
			}
		}
		if !missing(flows) {
			return
		}
		if clock.Sleep(ctx, probeEvery/looks) != nil {
			return
		}
	}
}

func missing(flows []*flow) bool {
	return slices.ContainsFunc(flows, func(f *flow) bool { return !f.arrival.Arrived })
}

// dial connects from the namespace and says how that went.
func (e *end) dial(ctx context.Context, address string) (outcome string, took time.Duration) {
	began := clock.Now()
	err := e.space.do(func() error {
		c, err := (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp4", address)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	took = time.Duration(clock.Now() - began)
	var late net.Error
	switch {
	case err == nil:
		return Connected, took
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused, took
	case errors.As(err, &late) && late.Timeout():
		return Silent, took
	}
	return err.Error(), took
}
