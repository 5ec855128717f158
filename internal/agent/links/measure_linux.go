package links

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

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

const (
	// gaugeHead is the size of the smallest datagram: measurement, kind, flow, number, and time of sending.
	gaugeHead = 8 + 1 + 2 + 4 + 8
	// gaugeMost bounds the datagrams of one measurement.
	gaugeMost = 200_000
	// gaugeLook is the interval of checks whether all has arrived. If some are lost the checks go on for the whole
	// patience, and must not keep a slow machine busy.
	gaugeLook = 5 * time.Millisecond
	// wireHead is the overhead of a datagram on the wire: headers of Ethernet, IP and UDP.
	wireHead = 14 + 20 + 8
)

const (
	gaugeAsk = iota
	gaugeEcho
)

// doMeasure sends numbered datagrams between a process's namespace and those of its peers.
func doMeasure(ctx context.Context, c agent.Call, args links.MeasureArgs) (any, error) {
	var out links.Measured
	err := runPlan(ctx, c, args.Plan(), out.Take)
	return out, err
}

// runPlan carries out a plan whose ends all belong to this agent.
func runPlan(ctx context.Context, c agent.Call, plan links.Plan, take func(links.Plan, links.Sight)) error {
	g, err := newGauge(plan)
	if err != nil {
		return err
	}
	defer g.close()
	every := make([]int, len(plan.Ends))
	for i := range every {
		every[i] = i
	}
	ends, err := g.open(ctx, c, every)
	if err != nil {
		return err
	}
	if err := g.send(ctx, ends); err != nil {
		return err
	}
	seen, err := g.look(ctx)
	if err == nil {
		take(plan, seen)
	}
	return err
}

// gauge is this agent's part of a plan: it sends numbered datagrams between the namespaces of processes and records
// what arrives.
type gauge struct {
	plan  links.Plan
	ends  []*gaugeEnd // in the plan's order; nil for those of other agents
	flows []*gaugeFlow

	begun    int64  // when sending was
	datagram []byte // that is sent next
	control  string // error of the dial of the plan's Control
}

// gaugeFlow is one direction of one link. A datagram's times are 0 until it was seen.
type gaugeFlow struct {
	from, to *gaugeEnd      // nil for those of other agents
	at       netip.AddrPort // destination of the datagrams
	dialled  links.Arrival  // outcome of the dial

	mu      sync.Mutex
	sent    []int64 // by the sender's clock
	arrived []int64
	echoed  []int64
	copies  int
	echoes  int
	seen    int
}

// newGauge rejects a plan that is too large or inconsistent.
func newGauge(plan links.Plan) (*gauge, error) {
	n := len(plan.Flows)
	if plan.Count < 1 || plan.Count*n > gaugeMost || n > 1<<16 {
		return nil, fmt.Errorf("%d datagrams on each of %d flows: want 1 to %d in total", plan.Count, n, gaugeMost)
	}
	for _, f := range plan.Flows {
		if min(f.From, f.To) < 0 || max(f.From, f.To) >= len(plan.Ends) {
			return nil, fmt.Errorf("a flow from end %d to end %d: there are %d", f.From, f.To, len(plan.Ends))
		}
	}
	return &gauge{plan: plan, ends: make([]*gaugeEnd, len(plan.Ends))}, nil
}

// open opens an end in the namespace of each process of an order, and begins to record arrivals. own has the indexes of
// these ends in the plan.
func (g *gauge) open(ctx context.Context, c agent.Call, own []int) ([]links.OpenEnd, error) {
	processes := append([]proc.Process{c.Process}, c.With...)
	if len(processes) != len(own) {
		return nil, fmt.Errorf("%d addresses for %d processes", len(own), len(processes))
	}
	for i, p := range processes {
		if own[i] < 0 || own[i] >= len(g.ends) || g.ends[own[i]] != nil {
			return nil, fmt.Errorf("there is no end %d, or it is open already", own[i])
		}
		at := g.plan.Ends[own[i]]
		e, err := openGaugeEnd(ctx, p, at)
		if err != nil {
			return nil, fmt.Errorf("measure from %s: %w", at.Address, err)
		}
		g.ends[own[i]] = e
	}
	for _, planned := range g.plan.Flows {
		f := &gaugeFlow{from: g.ends[planned.From], to: g.ends[planned.To]}
		f.sent, f.arrived, f.echoed = make([]int64, g.plan.Count), make([]int64, g.plan.Count),
			make([]int64, g.plan.Count)
		g.flows = append(g.flows, f)
		if planned.Dial && f.to != nil {
			if err := f.to.listen(); err != nil {
				return nil, fmt.Errorf("probe from %s: %w", f.to.socket.LocalAddr(), err)
			}
		}
	}
	var out []links.OpenEnd
	for _, i := range own {
		e := g.ends[i]
		e.ended = make(chan struct{})
		go g.receive(e)
		open := links.OpenEnd{Socket: e.socket.LocalAddr().String()}
		if e.listener != nil {
			open.Listener = e.listener.Addr().String()
		}
		out = append(out, open)
	}
	return out, nil
}

func (g *gauge) close() {
	for _, e := range g.ends {
		if e != nil {
			e.close()
		}
	}
}

// receive records what arrives at an end, and echoes datagrams that ask for it.
func (g *gauge) receive(e *gaugeEnd) {
	defer close(e.ended)
	b := make([]byte, 1<<16)
	for {
		n, from, err := e.socket.ReadFromUDPAddrPort(b)
		now := clock.Now()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil || n < gaugeHead || binary.BigEndian.Uint64(b) != g.plan.Number:
			continue
		}
		flow, number := int(binary.BigEndian.Uint16(b[9:])), int(binary.BigEndian.Uint32(b[11:]))
		if flow >= len(g.flows) || number >= g.plan.Count {
			continue
		}
		f, sent := g.flows[flow], int64(binary.BigEndian.Uint64(b[15:]))
		f.note(b[8] == gaugeEcho, number, sent, now)
		if b[8] == gaugeAsk && g.plan.Echo {
			b[8] = gaugeEcho
			_, _ = e.socket.WriteToUDPAddrPort(b[:n], from) // an unsent echo counts as lost
		}
	}
}

// note records a datagram, or its echo. The time of sending comes from the datagram: another agent may have sent it.
func (f *gaugeFlow) note(echo bool, number int, sent, now int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case echo && f.echoed[number] == 0:
		f.echoed[number] = now
		f.echoes++
	case !echo && f.arrived[number] == 0:
		f.sent[number], f.arrived[number] = sent, now
		f.seen++
	case !echo:
		f.copies++
	}
}

// send sends the datagrams of this agent's ends; ends has the addresses of all ends.
func (g *gauge) send(ctx context.Context, ends []links.OpenEnd) error {
	if len(ends) != len(g.ends) {
		return fmt.Errorf("%d addresses of %d ends", len(ends), len(g.ends))
	}
	outward := false
	for i, f := range g.flows {
		at, err := netip.ParseAddrPort(ends[g.plan.Flows[i].To].Socket)
		if err != nil {
			return err
		}
		f.at, outward = at, outward || f.from != nil
	}
	g.begun = clock.Now()
	switch {
	case g.plan.Probe:
		return g.probe(ctx, ends)
	case outward:
		return g.stream(ctx)
	}
	return nil
}

// stream sends the datagrams of all flows at a steady pace, and catches up after it was descheduled.
func (g *gauge) stream(ctx context.Context) error {
	for n := range g.plan.Count {
		if wait := time.Duration(g.begun + int64(n)*int64(g.plan.Every) - clock.Now()); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for i, f := range g.flows {
			if f.from != nil {
				g.sendOne(i, n)
			}
		}
	}
	return nil
}

// sendOne sends a flow's datagram of that number.
func (g *gauge) sendOne(flow, number int) {
	if g.datagram == nil {
		g.datagram = make([]byte, max(g.plan.Size, gaugeHead))
		binary.BigEndian.PutUint64(g.datagram, g.plan.Number)
		g.datagram[8] = gaugeAsk
	}
	binary.BigEndian.PutUint16(g.datagram[9:], uint16(flow))
	binary.BigEndian.PutUint32(g.datagram[11:], uint32(number))
	f := g.flows[flow]
	f.mu.Lock()
	f.sent[number] = clock.Now()
	binary.BigEndian.PutUint64(g.datagram[15:], uint64(f.sent[number]))
	f.mu.Unlock()
	_, _ = f.from.socket.WriteToUDPAddrPort(g.datagram, f.at) // a refused one counts as lost
}

// look waits for the datagrams in flight, and sums up.
func (g *gauge) look(ctx context.Context) (links.Sight, error) {
	out := links.Sight{Control: g.control}
	if g.plan.Probe {
		for _, f := range g.flows {
			out.Arrivals = append(out.Arrivals, f.arrival(g.begun))
		}
		return out, ctx.Err()
	}
	for over := clock.Now() + int64(g.plan.Patience); clock.Now() < over && !g.complete(); {
		if clock.Sleep(ctx, gaugeLook) != nil {
			return out, ctx.Err()
		}
	}
	var errs []error
	for _, f := range g.flows {
		flow, err := f.sum(max(g.plan.Size, gaugeHead))
		out.Flows, errs = append(out.Flows, flow), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// complete reports whether all datagrams and all echoes have arrived at this agent's ends. For flows to another agent's
// end only the echoes count.
func (g *gauge) complete() bool {
	return !slices.ContainsFunc(g.flows, func(f *gaugeFlow) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		asked := len(f.sent)
		if f.to != nil {
			if f.seen < asked {
				return true
			}
			asked = f.seen
		}
		return f.from != nil && g.plan.Echo && f.echoes < asked
	})
}

// sum summarizes a flow.
func (f *gaugeFlow) sum(size int) (links.Flow, error) {
	out := f.describe(size)
	if f.to == nil {
		return out, nil
	}
	var damaged uint64
	err := f.to.space.do(func() (err error) { damaged, err = wrongChecksums(); return err })
	out.Damaged = damaged - f.to.damaged
	return out, err
}

// describe makes a Flow from the records.
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
		if at < latest {
			out.Leapt++
		}
		latest = max(latest, at)
		if first == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	for i, at := range f.echoed {
		if at != 0 {
			round = append(round, time.Duration(at-f.sent[i]))
		}
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
