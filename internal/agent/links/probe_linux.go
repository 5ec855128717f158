package links

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
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

// doProbe sends datagrams between a process's namespace and those of its peers until one has arrived on each flow.
func doProbe(ctx context.Context, c agent.Call, args links.ProbeArgs) (any, error) {
	if len(args.Peers) != len(c.With) {
		return nil, fmt.Errorf("%d addresses for %d peers", len(args.Peers), len(c.With))
	}
	rounds := max(probeLeast, int(args.Patience/probeEvery)+1)
	p := &probe{
		gauge:     gauge{args: links.MeasureArgs{ProbeEnd: args.ProbeEnd, Peers: args.Peers, Count: rounds}, this: uint64(clock.Now())},
		args:      args,
		listeners: make(map[*gaugeEnd]net.Listener),
	}
	defer p.close()
	if err := p.open(ctx, c.Process, c.With); err != nil {
		return nil, err
	}
	return p.run(ctx)
}

// probe is one use of doProbe: a gauge that asks only whether anything arrives, and dials beside that.
type probe struct {
	gauge
	args      links.ProbeArgs
	listeners map[*gaugeEnd]net.Listener // what is dialled; the kernel completes the connections
}

// open opens the ends. The first flow is from the target to itself, then come two for each peer, out and in.
func (p *probe) open(ctx context.Context, target proc.Process, peers []proc.Process) error {
	if err := p.gauge.open(ctx, target, peers); err != nil {
		return err
	}
	p.add(p.self, p.self)
	for _, e := range p.peers {
		p.add(p.self, e)
		p.add(e, p.self)
	}
	for _, e := range append(p.peers, p.self) {
		err := e.space.do(func() (err error) {
			p.listeners[e], err = net.Listen("tcp4", net.JoinHostPort(e.address.Addr().String(), "0"))
			return err
		})
		if err != nil {
			return fmt.Errorf("probe from %s: %w", e.address, err)
		}
	}
	p.listen()
	return nil
}

func (p *probe) close() {
	for _, l := range p.listeners {
		if l != nil {
			_ = l.Close()
		}
	}
	p.gauge.close()
}

// run sends until everything has arrived, or patience is over.
func (p *probe) run(ctx context.Context) (links.ProbeResult, error) {
	out, dialled := links.ProbeResult{}, make([]links.Arrival, len(p.flows))
	var beside sync.WaitGroup
	if p.args.Control != "" {
		beside.Go(func() {
			if said, _ := p.self.dial(ctx, p.args.Control); said != links.Connected {
				out.Control = said
			}
		})
	}
	for i, f := range p.flows[1:] {
		if outward := i%2 == 0; outward && p.args.DialOut || !outward && p.args.DialIn {
			a := &dialled[1+i]
			beside.Go(func() { a.Dial, a.Took = f.from.dial(ctx, p.listeners[f.to].Addr().String()) })
		}
	}
	over := clock.Now() + int64(p.args.Patience)
	for n := 0; n < p.gauge.args.Count && p.missing() && ctx.Err() == nil && (n < probeLeast || clock.Now() < over); n++ {
		p.round(ctx, n)
	}
	beside.Wait()
	out.Self = p.flows[0].arrival().Arrived
	for i := range p.peers {
		seen := [2]links.Arrival{}
		for way := range seen {
			at := 1 + 2*i + way
			seen[way] = p.flows[at].arrival()
			seen[way].Dial, seen[way].Took = dialled[at].Dial, dialled[at].Took
		}
		out.Peers = append(out.Peers, links.Seen{Out: seen[0], In: seen[1]})
	}
	return out, ctx.Err()
}

// round sends a datagram on every flow on which none has arrived yet, and waits a while for arrivals.
func (p *probe) round(ctx context.Context, n int) {
	for i, f := range p.flows {
		if !f.arrival().Arrived {
			p.sendOne(i, n)
		}
	}
	const looks = 20
	for range looks {
		if !p.missing() || clock.Sleep(ctx, probeEvery/looks) != nil {
			return
		}
	}
}

func (p *probe) missing() bool {
	return slices.ContainsFunc(p.flows, func(f *gaugeFlow) bool { return !f.arrival().Arrived })
}

// arrival is what became of the flow's datagrams: whichever came first.
func (f *gaugeFlow) arrival() links.Arrival {
	f.mu.Lock()
	defer f.mu.Unlock()
	var a links.Arrival
	for n, sent := range f.sent {
		if sent == 0 {
			break
		}
		a.Sent++
		if at := f.arrived[n]; at != 0 && (!a.Arrived || time.Duration(at-f.sent[0]) < a.After) {
			a.Arrived, a.After = true, time.Duration(at-f.sent[0])
		}
	}
	return a
}

// dial connects from the namespace and says how that went.
func (e *gaugeEnd) dial(ctx context.Context, address string) (outcome string, took time.Duration) {
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
		return links.Connected, took
	case errors.Is(err, unix.ECONNREFUSED):
		return links.Refused, took
	case errors.As(err, &late) && late.Timeout():
		return links.Silent, took
	}
	return err.Error(), took
}
