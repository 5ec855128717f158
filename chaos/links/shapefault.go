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

// shapeFault is a fault that shapes links: its request, and how its effect is measured.
type shapeFault struct {
	OnLinks
	kind    string
	shaping Shaping
	by      []Engine // allowed engines, the best first
	needs   []chaos.Capability
	gauge   MeasureArgs // the measurement that shows it: Count, Every, Size, Echo
	longest time.Duration
	effect
}

// effect is how a fault shows in the measurements of links.
type effect struct {
	// shows judges whether one lane was hit: Installed, NotInstalled, or Indeterminate if too little was seen.
	shows func(l shapedLane) history.ReceiptStatus
	// complete judges whether the rest of the request, such as the jitter of a delay, also shows on a lane that was
	// hit. nil: there is no rest.
	complete func(l shapedLane) history.ReceiptStatus
	// text describes the measured effect on some lanes, beside the measurement before and the request.
	text func(lanes []shapedLane) string
	// noisy reports whether one measurement of a lane proves little: before the fault the lane already looked like it,
	// or varied too much between datagrams.
	noisy func(was Flow) bool
}

// shapedLane is one direction of one link, before and now.
type shapedLane struct {
	peer    string
	outward bool // from the target
	// affected directions, if connections to an external server were measured; else 0
	ways    int
	was, is Flow
	// others are the link faults that may have caused the difference.
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

// Needs returns the capabilities that the targets must have.
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
	// gaugeRate is the number of datagrams per second over all links of a target; as many echoes come on top.
	gaugeRate = 8000
	// gaugeMost is the maximum number of datagrams in one measurement of a target.
	gaugeMost = 150_000
	// gaugeTime is the duration of a measurement, and gaugeBefore the number of datagrams before the fault.
	gaugeTime   = 3 * time.Second
	gaugeBefore = 300
	// congestedSpread is the spread of the times of datagrams above which the machine cannot carry so many. Then they
	// are sent sparser times slower.
	congestedSpread = 5 * time.Millisecond
	sparser         = 8
	// gaugePatience is how long to wait for datagrams, besides the times seen before.
	gaugePatience = 500 * time.Millisecond
	// longestWait bounds the whole wait if faults add up.
	longestWait = 12 * time.Second
)

// Inject measures the links, installs the rules, and measures again.
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
		receipt.Evidence += "; this is the second measurement, because the links were unsteady before the fault; the first one: " + first
	}
	if s.Run != nil {
		s.Run.Counts(x.block.counter(ctx))
	}
	met, err := x.block.sum(ctx, err)
	receipt.By = string(x.fault.shaping.Engine)
	receipt.Evidence += fmt.Sprintf("; by %v: the rules matched %d packets, %v", engineText(x.fault.shaping.Engine),
		met.Packets, shapedText(met.Shaped))
	if x.fault.shaping.Correlation > 0 {
		receipt.Evidence += "; the correlation of successive packets was not measured"
	}
	if met.Packets == 0 && failed == nil && receipt.Status == history.Installed {
		receipt.Status = history.Indeterminate // another fault had the effect
	}
	return x.unshape, receipt, errors.Join(failed, err)
}

// look measures the links with the rules installed, and judges them.
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

// roundTrip returns the mean over all links of the median round trip, in ms.
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

// congested reports whether datagrams queued behind each other because the machine is too slow for so many. That wait
// is not a delay of the link.
func congested(f Flow) bool { return f.OneWay.High-f.OneWay.Low > congestedSpread }

// flows returns the measured flows of one link, in one direction or both.
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

// lanesBefore reports whether the predicate holds for any lane as measured before the fault.
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
			return chaos.Unavailable{What: string(CanFilter), Reason: t.Name() + " is a node without this capability"}
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

// choose returns the first engine that is available at all nodes where it would work. Nodes on several hosts have
// several kernels.
func (x *shapeInjection) choose(ctx context.Context) (Engine, error) {
	there, err := x.askEngines(ctx)
	if err != nil {
		return "", fmt.Errorf("query the shaping engines: %w", err)
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

// lacks returns why an engine is unavailable where it would work; "" if it is available.
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

// askEngines asks all nodes for their engines. Nodes that do not answer are left out: a node that was never started
// needs none.
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

// standsAt reports whether an engine would work at a node.
func (x *shapeInjection) standsAt(e Engine, n chaos.Node) bool {
	sends, receives := x.fault.Direction.out(), x.fault.Direction.in() // directions to shape
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

// measure measures all links of all targets, and waits longer where the measurement before took long. For the
// measurement before the fault, before is nil.
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
		if m.Size == 0 { // otherwise size and rate are given by the fault
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
			links = nil // not measured, which the receipt says
		}
		mu.Lock()
		defer mu.Unlock()
		seen[t.Name()] = links
		return nil
	})
	return seen
}
