package agent

import (
	"context"
	"encoding/binary"
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
	// gaugeHead is the smallest datagram: which measurement, what it is, of which flow, its number, when it was sent.
	gaugeHead = 8 + 1 + 2 + 4 + 8
	// gaugeMost bounds what one measurement may send.
	gaugeMost   = 200_000
	gaugeBuffer = 4 << 20
	// gaugeLook is how often is looked whether all has arrived. Where some are lost that goes on for the whole patience, and
	// must not keep a slow machine busy.
	gaugeLook = 5 * time.Millisecond
	// bindPatience is how long a port is waited for that another measurement has.
	bindPatience = 3 * time.Second
	// wireHead is what a datagram has on the wire beside its payload: headers of Ethernet, IP and UDP.
	wireHead = 14 + 20 + 8
)

const (
	gaugeAsk = iota
	gaugeEcho
)

// doMeasure sends numbered datagrams between a process's namespace and those of its peers.
func doMeasure(ctx context.Context, c call) (any, error) {
	args, err := decode[MeasureArgs](c.args)
	if err != nil {
		return nil, err
	}
	flows := 0
	for _, asked := range []bool{args.Out, args.In} {
		if asked {
			flows += len(args.Peers)
		}
	}
	switch {
	case len(args.Peers) != len(c.with):
		return nil, fmt.Errorf("%d addresses for %d peers", len(args.Peers), len(c.with))
	case args.Count < 1 || args.Count*flows > gaugeMost || flows > 1<<16:
		return nil, fmt.Errorf("%d datagrams on each of %d flows: want 1 to %d in all", args.Count, flows, gaugeMost)
	}
	g := &gauge{args: args, this: uint64(clock.Now())}
	defer g.close()
	if err := g.open(ctx, c.process, c.with); err != nil {
		return nil, err
	}
	return g.run(ctx)
}

// gauge is one use of doMeasure.
type gauge struct {
	args  MeasureArgs
	this  uint64 // so that what an earlier measurement sent is told apart
	self  *gaugeEnd
	peers []*gaugeEnd
	flows []*gaugeFlow
}

// gaugeEnd is the agent's socket in one namespace.
type gaugeEnd struct {
	space   *namespace
	socket  *net.UDPConn
	address netip.AddrPort
	ended   chan struct{}
	damaged uint64 // by the kernel's counts, before
}

// gaugeFlow is one direction of one link. A datagram's times are 0 as long as it was not seen.
type gaugeFlow struct {
	from, to *gaugeEnd
	peer     int
	outward  bool

	mu      sync.Mutex
	sent    []int64
	arrived []int64
	echoed  []int64
	copies  int
	echoes  int
	seen    int
}

func (g *gauge) open(ctx context.Context, target Process, peers []Process) error {
	var err error
	if g.self, err = openGaugeEnd(ctx, target, g.args.ProbeEnd); err != nil {
		return fmt.Errorf("measure from %s: %w", g.args.Address, err)
	}
	for i, p := range peers {
		e, err := openGaugeEnd(ctx, p, g.args.Peers[i])
		if err != nil {
			return fmt.Errorf("measure from %s: %w", g.args.Peers[i].Address, err)
		}
		g.peers = append(g.peers, e)
	}
	add := func(asked bool, f *gaugeFlow) {
		if asked {
			n := g.args.Count
			f.sent, f.arrived, f.echoed = make([]int64, n), make([]int64, n), make([]int64, n)
			g.flows = append(g.flows, f)
		}
	}
	for i, e := range g.peers {
		add(g.args.Out, &gaugeFlow{from: g.self, to: e, peer: i, outward: true})
		add(g.args.In, &gaugeFlow{from: e, to: g.self, peer: i})
	}
	for _, e := range append(g.peers, g.self) {
		e.ended = make(chan struct{})
		go g.receive(e)
	}
	return nil
}

func openGaugeEnd(ctx context.Context, of Process, at ProbeEnd) (*gaugeEnd, error) {
	host, err := netip.ParseAddr(at.Address)
	if err != nil {
		return nil, err
	}
	space, err := openNamespace(of)
	if err != nil {
		return nil, err
	}
	e := &gaugeEnd{space: space}
	for until := clock.Now() + int64(bindPatience); ; {
		err = space.do(func() (err error) {
			e.socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(host, at.Port)))
			if err == nil {
				e.damaged, err = wrongChecksums()
			}
			return err
		})
		if !errors.Is(err, unix.EADDRINUSE) || clock.Now() > until || ctx.Err() != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	e.widen()
	e.address = e.socket.LocalAddr().(*net.UDPAddr).AddrPort()
	return e, nil
}

// widen gives the socket room for what comes while this process is kept from the processor: what its own buffer loses is not the
// link's loss.
func (e *gaugeEnd) widen() {
	raw, err := e.socket.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, gaugeBuffer) })
	}
	if err != nil {
		_ = e.socket.SetReadBuffer(gaugeBuffer) // as much as anybody may have
	}
}

func (e *gaugeEnd) close() {
	if e.socket != nil {
		_ = e.socket.Close()
	}
	if e.ended != nil {
		<-e.ended
	}
	_ = e.space.close()
}

func (g *gauge) close() {
	for _, e := range append(g.peers, g.self) {
		if e != nil {
			e.close()
		}
	}
}

// receive notes what arrives at an end, and echoes what asks for it.
func (g *gauge) receive(e *gaugeEnd) {
	defer close(e.ended)
	b := make([]byte, 1<<16)
	for {
		n, from, err := e.socket.ReadFromUDPAddrPort(b)
		now := clock.Now()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil || n < gaugeHead || binary.BigEndian.Uint64(b) != g.this:
			continue
		}
		flow, number := int(binary.BigEndian.Uint16(b[9:])), int(binary.BigEndian.Uint32(b[11:]))
		if flow >= len(g.flows) || number >= g.args.Count {
			continue
		}
		f := g.flows[flow]
		f.note(b[8] == gaugeEcho, number, now)
		if b[8] == gaugeAsk && g.args.Echo {
			b[8] = gaugeEcho
			_, _ = e.socket.WriteToUDPAddrPort(b[:n], from) // one that cannot be sent does not arrive
		}
	}
}

func (f *gaugeFlow) note(echo bool, number int, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case echo && f.echoed[number] == 0:
		f.echoed[number] = now
		f.echoes++
	case !echo && f.arrived[number] == 0:
		f.arrived[number] = now
		f.seen++
	case !echo:
		f.copies++
	}
}

// run sends, waits for what is under way, and adds up.
func (g *gauge) run(ctx context.Context) (Measured, error) {
	if err := g.send(ctx); err != nil {
		return Measured{}, err
	}
	for over := clock.Now() + int64(g.args.Patience); clock.Now() < over && !g.complete(); {
		if clock.Sleep(ctx, gaugeLook) != nil {
			return Measured{}, ctx.Err()
		}
	}
	out := Measured{Peers: make([]MeasuredLink, len(g.peers))}
	var errs []error
	for _, f := range g.flows {
		flow, err := f.sum(max(g.args.Size, gaugeHead))
		errs = append(errs, err)
		if f.outward {
			out.Peers[f.peer].Out = flow
		} else {
			out.Peers[f.peer].In = flow
		}
	}
	return out, errors.Join(errs...)
}

// send sends the datagrams of all flows, in even steps; it catches up when it was kept from the processor.
func (g *gauge) send(ctx context.Context) error {
	b := make([]byte, max(g.args.Size, gaugeHead))
	binary.BigEndian.PutUint64(b, g.this)
	b[8] = gaugeAsk
	begin := clock.Now()
	for n := range g.args.Count {
		if wait := time.Duration(begin + int64(n)*int64(g.args.Every) - clock.Now()); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i, f := range g.flows {
			binary.BigEndian.PutUint16(b[9:], uint16(i))
			binary.BigEndian.PutUint32(b[11:], uint32(n))
			f.mu.Lock()
			f.sent[n] = clock.Now()
			f.mu.Unlock()
			_, _ = f.from.socket.WriteToUDPAddrPort(b, f.to.address) // as in receive
		}
	}
	return nil
}

func (g *gauge) complete() bool {
	return !slices.ContainsFunc(g.flows, func(f *gaugeFlow) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.seen < len(f.sent) || g.args.Echo && f.echoes < f.seen
	})
}
