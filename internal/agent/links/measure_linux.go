package links

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
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
func doMeasure(ctx context.Context, c agent.Call, args links.MeasureArgs) (any, error) {
	flows := 0
	for _, asked := range []bool{args.Out, args.In} {
		if asked {
			flows += len(args.Peers)
		}
	}
	switch {
	case len(args.Peers) != len(c.With):
		return nil, fmt.Errorf("%d addresses for %d peers", len(args.Peers), len(c.With))
	case args.Count < 1 || args.Count*flows > gaugeMost || flows > 1<<16:
		return nil, fmt.Errorf("%d datagrams on each of %d flows: want 1 to %d in all", args.Count, flows, gaugeMost)
	}
	g := &gauge{args: args, this: uint64(clock.Now())}
	defer g.close()
	if err := g.open(ctx, c.Process, c.With); err != nil {
		return nil, err
	}
	for i, e := range g.peers {
		if args.Out {
			f := g.add(g.self, e)
			f.peer, f.outward = i, true
		}
		if args.In {
			g.add(e, g.self).peer = i
		}
	}
	g.listen()
	return g.run(ctx)
}

// gauge sends numbered datagrams between the namespaces of processes and notes what arrives: one use of doMeasure, or of doProbe.
type gauge struct {
	args  links.MeasureArgs
	this  uint64 // so that what an earlier measurement sent is told apart
	self  *gaugeEnd
	peers []*gaugeEnd
	flows []*gaugeFlow

	datagram []byte // that is sent next
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

func (g *gauge) open(ctx context.Context, target proc.Process, peers []proc.Process) error {
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
	return nil
}

// add makes a flow between two ends.
func (g *gauge) add(from, to *gaugeEnd) *gaugeFlow {
	n := g.args.Count
	f := &gaugeFlow{from: from, to: to, sent: make([]int64, n), arrived: make([]int64, n), echoed: make([]int64, n)}
	g.flows = append(g.flows, f)
	return f
}

// listen begins to note what arrives, when all flows are known.
func (g *gauge) listen() {
	for _, e := range append(g.peers, g.self) {
		e.ended = make(chan struct{})
		go g.receive(e)
	}
}

func openGaugeEnd(ctx context.Context, of proc.Process, at links.ProbeEnd) (*gaugeEnd, error) {
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
func (g *gauge) run(ctx context.Context) (links.Measured, error) {
	if err := g.send(ctx); err != nil {
		return links.Measured{}, err
	}
	for over := clock.Now() + int64(g.args.Patience); clock.Now() < over && !g.complete(); {
		if clock.Sleep(ctx, gaugeLook) != nil {
			return links.Measured{}, ctx.Err()
		}
	}
	out := links.Measured{Peers: make([]links.MeasuredLink, len(g.peers))}
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
	begin := clock.Now()
	for n := range g.args.Count {
		if wait := time.Duration(begin + int64(n)*int64(g.args.Every) - clock.Now()); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i := range g.flows {
			g.sendOne(i, n)
		}
	}
	return nil
}

// sendOne sends a flow's datagram of that number.
func (g *gauge) sendOne(flow, number int) {
	if g.datagram == nil {
		g.datagram = make([]byte, max(g.args.Size, gaugeHead))
		binary.BigEndian.PutUint64(g.datagram, g.this)
		g.datagram[8] = gaugeAsk
	}
	binary.BigEndian.PutUint16(g.datagram[9:], uint16(flow))
	binary.BigEndian.PutUint32(g.datagram[11:], uint32(number))
	f := g.flows[flow]
	f.mu.Lock()
	f.sent[number] = clock.Now()
	f.mu.Unlock()
	_, _ = f.from.socket.WriteToUDPAddrPort(g.datagram, f.to.address) // one that is refused does not arrive, that is all
}

func (g *gauge) complete() bool {
	return !slices.ContainsFunc(g.flows, func(f *gaugeFlow) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.seen < len(f.sent) || g.args.Echo && f.echoes < f.seen
	})
}

// sum describes what became of the datagrams.
func (f *gaugeFlow) sum(size int) (links.Flow, error) {
	var damaged uint64
	err := f.to.space.do(func() (err error) { damaged, err = wrongChecksums(); return err })
	out := f.describe(size)
	out.Damaged = damaged - f.to.damaged
	return out, err
}

// describe makes a Flow of what was noted.
func (f *gaugeFlow) describe(size int) links.Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := links.Flow{Sent: len(f.sent), Arrived: f.seen, Copies: f.copies}
	var oneWay, round []time.Duration
	var first, last, latest int64
	for i, at := range f.arrived {
		if at == 0 {
			continue
		}
		oneWay = append(oneWay, time.Duration(at-f.sent[i]))
		if f.echoes > 0 && f.echoed[i] != 0 {
			round = append(round, time.Duration(f.echoed[i]-f.sent[i]))
		}
		if at < latest {
			out.Leapt++
		}
		latest = max(latest, at)
		if first == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	out.OneWay, out.Round = spread(oneWay), spread(round)
	if last > first {
		out.Bits = float64((f.seen-1)*(size+wireHead)*8) / time.Duration(last-first).Seconds()
	}
	return out
}

func spread(d []time.Duration) links.Spread {
	if len(d) == 0 {
		return links.Spread{}
	}
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[int(q*float64(len(d)-1)+0.5)] }
	return links.Spread{Low: at(0.05), Mid: at(0.5), High: at(0.95), Max: d[len(d)-1]}
}

// wrongChecksums reads how many segments and datagrams the kernel of this thread's network namespace has thrown away because
// their checksum was wrong.
func wrongChecksums() (uint64, error) {
	f, err := os.Open("/proc/thread-self/net/snmp")
	if err != nil {
		return 0, fmt.Errorf("look at the network's counters: %w", err)
	}
	defer func() { _ = f.Close() }()
	var sum uint64
	names := map[string][]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); { // a line of names, then one of numbers, for each protocol
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		protocol := fields[0]
		if names[protocol] == nil {
			names[protocol] = fields
			continue
		}
		if i := slices.Index(names[protocol], "InCsumErrors"); (protocol == "Tcp:" || protocol == "Udp:") && i > 0 && i < len(fields) {
			n, err := strconv.ParseUint(fields[i], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the network's counters: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}
