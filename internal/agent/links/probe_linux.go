package links

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

// doProbe sends datagrams between a process's namespace and those of its peers until one has arrived on each flow.
func doProbe(ctx context.Context, c agent.Call, args links.ProbeArgs) (any, error) {
	var out links.ProbeResult
	err := runPlan(ctx, c, args.Plan(), out.Take)
	return out, err
}

// probe sends until something has arrived on every flow or patience is over. Meanwhile it makes the dials.
func (g *gauge) probe(ctx context.Context, ends []links.OpenEnd) error {
	var beside sync.WaitGroup
	if self := g.ends[0]; g.plan.Control != "" && self != nil {
		beside.Go(func() {
			if said, _ := self.dial(ctx, g.plan.Control); said != links.Connected {
				g.control = said
			}
		})
	}
	for i, f := range g.flows {
		if planned := g.plan.Flows[i]; planned.Dial && f.from != nil {
			beside.Go(func() { f.dialled.Dial, f.dialled.Took = f.from.dial(ctx, ends[planned.To].Listener) })
		}
	}
	over := g.begun + int64(g.plan.Patience)
	for n := 0; n < g.plan.Count && g.missing() && ctx.Err() == nil &&
		(n < links.ProbeLeast || clock.Now() < over); n++ {
		g.round(ctx, n)
	}
	beside.Wait()
	return ctx.Err()
}

// round sends a datagram on every flow on which none has arrived yet, and waits a while for arrivals.
func (g *gauge) round(ctx context.Context, n int) {
	for i, f := range g.flows {
		if f.missing() {
			g.sendOne(i, n)
		}
	}
	const looks = 20
	for range looks {
		if !g.missing() || clock.Sleep(ctx, g.plan.Every/looks) != nil {
			return
		}
	}
}

func (g *gauge) missing() bool { return slices.ContainsFunc(g.flows, (*gaugeFlow).missing) }

// missing reports whether none of this agent's datagrams has arrived yet. At another agent's end, only an echo shows
// the arrival.
func (f *gaugeFlow) missing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.from != nil && f.seen == 0 && (f.to != nil || f.echoes == 0)
}

// arrival returns the result of a flow: its first arrival.
func (f *gaugeFlow) arrival(begun int64) links.Arrival {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.dialled
	a.Arrived = f.seen > 0
	found := false
	for n, sent := range f.sent {
		if sent == 0 {
			continue
		}
		a.Sent++
		if after, ok := f.after(n, begun); ok && (!found || after < a.After) {
			a.After, found = after, true
		}
	}
	return a
}

// after returns how long after the first sending a datagram arrived. If the other end is another agent's, one clock
// cannot measure that. Then it is half a round trip after the datagram's own sending, or counts from when this agent
// began.
func (f *gaugeFlow) after(n int, begun int64) (time.Duration, bool) {
	switch {
	case f.to == nil:
		return time.Duration(f.sent[n] - f.sent[0] + (f.echoed[n]-f.sent[n])/2), f.echoed[n] != 0
	case f.from == nil:
		return time.Duration(max(f.arrived[n]-begun, 0)), f.arrived[n] != 0
	}
	return time.Duration(f.arrived[n] - f.sent[0]), f.arrived[n] != 0
}
