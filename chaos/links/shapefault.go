package links

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// shapeFault is a fault that shapes links: what it asks for, and how it shows itself.
type shapeFault struct {
	OnLinks
	kind    string
	shaping Shaping
	by      []Engine // that may do it, the best first
	needs   []chaos.Capability
	gauge   MeasureArgs // what is sent to see it: Count, Every, Size, Echo
	longest time.Duration
	effect
}

// effect is how a fault shows in the measurements of links.
type effect struct {
	// shows tells whether one lane was hit: Installed, NotInstalled, or Indeterminate where too little was seen.
	shows func(l shapedLane) history.ReceiptStatus
	// complete tells whether the rest of the request shows too on a lane that was hit, such as the jitter of a delay.
	// nil: there is no rest.
	complete func(l shapedLane) history.ReceiptStatus
	// text describes the measured effect on some lanes, next to the measurement before and the request.
	text func(lanes []shapedLane) string
	// noisy tells that a lane looked so much like the fault before it, or varied so much from datagram to datagram,
	// that one measurement hardly proves anything.
	noisy func(was Flow) bool
}

// shapedLane is one direction of one link, before and now.
type shapedLane struct {
	peer    string
	outward bool // from the target
	// directions that are hit and that a connection needs, where connections to somebody else's server were measured;
	// else 0
	ways    int
	was, is Flow
	// others are the link faults whose doing the difference may be.
	others chaos.Beside
}

func (l shapedLane) way() string {
	switch l.ways {
	case 1:
		return "connections to " + l.peer
	case 2:
		return "connections to " + l.peer + ", which need a packet each way"
	}
	if l.outward {
		return "to " + l.peer
	}
	return "from " + l.peer
}

// shapable is a target of a fault that shapes links.
type shapable interface {
	filterable
	Shaper
}

// Needs lists what the targets must have.
func (b shapeFault) Needs() []chaos.Capability { return b.needs }

// shapeInjection is one injection of a shapeFault.
type shapeInjection struct {
	fault   shapeFault
	block   block
	shapers []shapable
	was     map[string][]MeasuredLink // by target
	sparse  bool                      // measure with fewer datagrams a second
}

const (
	// gaugeRate is how many datagrams a second all links of a target get together, and as many echoes.
	gaugeRate = 8000
	// gaugeMost is how many datagrams one measurement of a target sends, at most.
	gaugeMost = 150_000
	// gaugeTime is how long is measured, and gaugeBefore how many datagrams must do before the fault.
	gaugeTime   = 3 * time.Second
	gaugeBefore = 300
	// congestedSpread is by how much the times of datagrams differ where more are sent than the machine carries. There
	// they are sent sparser times slower.
	congestedSpread = 5 * time.Millisecond
	sparser         = 8
	// gaugePatience is how long what should arrive is waited for, beside what it was seen to take.
	gaugePatience = 500 * time.Millisecond
	// longestWait bounds that, where faults add up.
	longestWait = 12 * time.Second
)

// Inject measures the links, puts up the rules, and measures again.
func (b shapeFault) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	x := &shapeInjection{fault: b, block: block{
		fault: b.kind, scope: s, direction: b.Direction,
		through: Through{Port: b.Port, PeerPort: b.PeerPort}, how: Shape,
	}}
	x.fault.shaping.Seed = s.Seed
	if err := x.prepare(ctx); err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	x.block.since = clock.Now()
	x.was = x.measure(ctx, nil)
	x.sparse = x.fault.gauge.Echo && x.lanesBefore(congested)
	if x.sparse || x.lanesBefore(x.fault.noisy) {
		x.was = x.measure(ctx, nil)
	}
	x.block.note()
	failed := chaos.AtAll(x.block.at, func(f filterable) error {
		n, ok := chaos.As[Shaper](f)
		if !ok {
			return chaos.Unavailable{What: string(CanShape), Reason: f.Name() +
				" is a node whose links cannot be shaped"}
		}
		return n.Shape(ctx, x.block.key, x.block.rules[f.Name()], x.fault.shaping)
	})
	receipt, err := x.look(ctx)
	if receipt.Status != history.Installed && failed == nil && x.lanesBefore(x.fault.noisy) {
		first := receipt.Evidence
		receipt, err = x.look(ctx)
		receipt.Evidence += "; that was the second look, since the links were unsteady before the fault; the first one: " + first
	}
	if s.Run != nil {
		s.Run.Counts(x.block.counter(ctx))
	}
	met, err := x.block.sum(ctx, err)
	receipt.By = string(x.fault.shaping.Engine)
	receipt.Evidence += fmt.Sprintf("; by %v: the rules met %d packets, %v", engineText(x.fault.shaping.Engine),
		met.Packets, shapedText(met.Shaped))
	if x.fault.shaping.Correlation > 0 {
		receipt.Evidence += "; how much the fate of one packet is that of the one before it was not measured"
	}
	if met.Packets == 0 && failed == nil && receipt.Status == history.Installed {
		receipt.Status = history.Indeterminate // the effect was another's
	}
	return x.unshape, receipt, errors.Join(failed, err)
}

// look measures the links with the rules up, and judges them.
func (x *shapeInjection) look(ctx context.Context) (history.Receipt, error) {
	now := x.measure(ctx, x.was)
	r, err := chaos.OnEach(x.shapers, func(t shapable) (history.Receipt, error) {
		return x.judgeShaped(t, now[t.Name()]),
			nil
	})
	if x.fault.gauge.Echo {
		r.Figures = map[string]float64{"round_trip_before_ms": x.roundTrip(x.was), "round_trip_ms": x.roundTrip(now)}
	}
	return r, err
}

// roundTrip is the mean over all links of the median round trip, in ms.
func (x *shapeInjection) roundTrip(seen map[string][]MeasuredLink) float64 {
	sum, n := time.Duration(0), 0
	for _, links := range seen {
		for _, l := range links {
			for _, f := range l.flows(Both) {
				if f.Round.Mid > 0 {
					sum, n = sum+f.Round.Mid, n+1
				}
			}
		}
	}
	return sum.Seconds() * 1e3 / float64(max(n, 1))
}

// congested tells that datagrams waited for each other, on a machine that is too slow for so many. That wait is not a
// delay of the link.
func congested(f Flow) bool { return f.OneWay.High-f.OneWay.Low > congestedSpread }

// flows are what was measured of one link in a direction, or in both.
func (l MeasuredLink) flows(d Direction) (out []Flow) {
	if l.Shake != nil {
		return []Flow{*l.Shake}
	}
	if d.out() {
		out = append(out, l.Out)
	}
	if d.in() {
		out = append(out, l.In)
	}
	return out
}

// lanesBefore tells whether something is true of any lane as it was before the fault.
func (x *shapeInjection) lanesBefore(is func(Flow) bool) bool {
	for _, links := range x.was {
		for _, l := range links {
			if slices.ContainsFunc(l.flows(x.fault.Direction), is) {
				return true
			}
		}
	}
	return false
}

// prepare chooses an engine and plans the rules.
func (x *shapeInjection) prepare(ctx context.Context) error {
	var err error
	if x.shapers, err = chaos.Capable[shapable](x.block.scope.On, CanShape); err != nil {
		return err
	}
	for _, t := range x.shapers {
		l, ok := chaos.As[linked](t)
		if !ok {
			return chaos.Unavailable{What: string(CanFilter), Reason: t.Name() + " is a node that it cannot be done to"}
		}
		x.block.targets = append(x.block.targets, l)
	}
	if len(x.shapers) == 0 {
		return errors.New("there is no target")
	}
	if x.fault.shaping.Engine, err = x.choose(ctx); err != nil {
		return err
	}
	return x.block.plan(func(l chaos.Lane) {
		switch {
		case foreign(l.To), atSender(x.fault.shaping.Engine) && !foreign(l.From):
			x.block.rule(l.From, leaving(l, Shape))
		default:
			x.block.rule(l.To, arriving(l, Shape))
		}
	})
}

// choose takes the first engine that can be had wherever it would stand. Nodes on several hosts have several kernels.
func (x *shapeInjection) choose(ctx context.Context) (Engine, error) {
	there, err := x.askEngines(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the engines that shape links: %w", err)
	}
	var why []string
	by := x.fault.by
	if slices.ContainsFunc(x.block.scope.Peers, foreign) && x.fault.Direction.in() {
		if _, err := x.fault.AtOwnEnd(); err != nil {
			return "", err
		}
		by = []Engine{Queue}
	}
	for _, e := range by {
		lacking := x.lacks(e, there)
		if lacking == "" {
			return e, nil
		}
		why = append(why, lacking)
	}
	return "", chaos.Unavailable{What: x.fault.kind, Reason: strings.Join(why, "; ")}
}

// lacks tells why an engine cannot be had where it would stand; "" where it can.
func (x *shapeInjection) lacks(e Engine, there map[string]Engines) string {
	for _, n := range slices.Concat(x.block.scope.On, x.block.scope.Peers) {
		engines, asked := there[n.Name()]
		reason, known := engines[e]
		if !asked || !x.standsAt(e, n) || known && reason == "" {
			continue
		}
		if reason != there[x.shapers[0].Name()][e] {
			reason += " (where " + n.Name() + " is)"
		}
		return fmt.Sprintf("%s: %s", engineText(e), reason)
	}
	return ""
}

// askEngines asks all nodes for the engines that there are. Those that cannot be asked have none of their own to
// choose: nothing stands at a node that was never started.
func (x *shapeInjection) askEngines(ctx context.Context) (map[string]Engines, error) {
	first, err := x.shapers[0].Engines(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]Engines{x.shapers[0].Name(): first}
	var others []shapable
	for _, n := range slices.Concat(x.block.scope.On, x.block.scope.Peers) {
		if s, ok := chaos.As[shapable](n); ok && !foreign(n) && s.Name() != x.shapers[0].Name() {
			others = append(others, s)
		}
	}
	var mu sync.Mutex
	return there, chaos.AtAll(others, func(n shapable) error {
		if e, err := n.Engines(ctx); err == nil {
			mu.Lock()
			defer mu.Unlock()
			there[n.Name()] = e
		}
		return nil
	})
}

// standsAt tells whether an engine would stand at a node.
func (x *shapeInjection) standsAt(e Engine, n chaos.Node) bool {
	sends, receives := x.fault.Direction.out(), x.fault.Direction.in() // what is shaped
	if !slices.Contains(x.block.scope.On, n) {
		sends, receives = receives, sends
	} else if slices.ContainsFunc(x.block.scope.Peers, foreign) {
		return true
	}
	if atSender(e) {
		return sends
	}
	return receives
}

// measure measures all links of all targets, waiting longer for what was seen to take long before.
// Before the fault, before is nil.
func (x *shapeInjection) measure(ctx context.Context,
	before map[string][]MeasuredLink,
) map[string][]MeasuredLink {
	patience := gaugePatience + 2*x.fault.longest
	for _, links := range before {
		for _, l := range links {
			for _, f := range l.flows(Both) {
				patience = max(patience, gaugePatience+2*(x.fault.longest+f.OneWay.Max))
			}
		}
	}
	var mu sync.Mutex
	seen := make(map[string][]MeasuredLink)
	_ = chaos.AtAll(x.shapers, func(t shapable) error {
		m := x.fault.gauge
		m.Out, m.In, m.Patience = x.fault.Direction.out(), x.fault.Direction.in(), min(patience, longestWait)
		m.ProbeEnd, m.Peers = x.block.ends(t)
		lanes := len(m.Peers) * len(x.shapers)
		if m.Out && m.In {
			lanes *= 2
		}
		if m.Size == 0 { // else it is of the size and speed that the fault needs
			m.Every = max(m.Every, time.Duration(lanes)*time.Second/gaugeRate)
			if m.Echo && x.sparse {
				m.Every *= sparser
			}
			m.Count = min(m.Count, int(gaugeTime/m.Every))
		}
		m.Count = min(m.Count, gaugeMost/lanes)
		if before == nil {
			m.Count = min(m.Count, gaugeBefore)
		}
		waited := clock.Waits(ctx, time.Duration(m.Count)*m.Every+m.Patience)
		links, err := t.MeasureLinks(ctx, x.block.scope.Peers, m)
		waited()
		if err != nil {
			links = nil // nothing is known of it, which the receipt says
		}
		mu.Lock()
		defer mu.Unlock()
		seen[t.Name()] = links
		return nil
	})
	return seen
}
