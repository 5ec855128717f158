package links

import (
	"errors"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// The orders on one agent's side of a Plan, by name. They have one key, and the supervisor gives each to all sides
// before the next one.
//
// Example: redis-1 and redis-2 are on two hosts, each with its agent. Both agents open a socket in the namespace of
// their node and tell its port. Then both send, and when the last has sent, both tell what they saw: one that it sent
// 100 datagrams of which each took 0.4 ms to come back, the other that 100 arrived and none overtook another. That
// makes one Flow.
const (
	// OpenArgs, with the processes of its ends; answers an OpenEnd of each. The undo closes them
	DoSideOpen = "side-open"
	DoSideSend = "side-send" // all ends as []OpenEnd; answers when the datagrams are sent and the dials made
	DoSideSeen = "side-seen" // answers a Sight, when all has arrived or is not waited for any longer
)

// Plan is what is sent between the ends of some links, by one agent whose ends they all are or by several: a
// measurement, or a probe.
type Plan struct {
	Number   uint64        `json:"number"`   // tells its datagrams from those of others
	Ends     []ProbeEnd    `json:"ends"`     // the target's, and then its peers'
	Flows    []PlannedFlow `json:"flows"`    // in the order in which they are answered
	Count    int           `json:"count"`    // datagrams on each flow
	Every    time.Duration `json:"every_ns"` // between two of them
	Size     int           `json:"size,omitempty"`
	Echo     bool          `json:"echo,omitempty"` // each datagram is answered
	Patience time.Duration `json:"patience_ns"`
	// Probe asks only whether anything arrives: no more is sent on a flow on which something has. Patience is then for
	// the sending.
	Probe   bool   `json:"probe,omitempty"`
	Control string `json:"control,omitempty"` // as in ProbeArgs
}

// PlannedFlow is one direction of one link. Its ends are places among a plan's.
type PlannedFlow struct {
	From int  `json:"from"`
	To   int  `json:"to"`
	Dial bool `json:"dial,omitempty"` // open a TCP connection beside
}

// OpenArgs are the arguments of DoSideOpen.
type OpenArgs struct {
	Plan Plan  `json:"plan"`
	Own  []int `json:"own"` // which of its ends this agent opens, in the order of the processes
}

// OpenEnd is an end that an agent has opened.
type OpenEnd struct {
	Socket   string `json:"socket"`             // host:port that datagrams go to
	Listener string `json:"listener,omitempty"` // host:port that is dialled
}

// Sight is what one agent saw of a plan: of each flow what the agent of its sender knows, or that of its receiver, or
// both.
type Sight struct {
	Flows    []Flow    `json:"flows,omitempty"`    // of a measurement
	Arrivals []Arrival `json:"arrivals,omitempty"` // of a probe
	Control  string    `json:"control,omitempty"`
}

const (
	// probeEvery is the pause between two datagrams on one link; a link that loses some shows itself all the same.
	probeEvery = 20 * time.Millisecond
	// ProbeLeast is how many datagrams must be missed by a probe, however late the agent is given the processor.
	ProbeLeast = 5
)

// Plan has up to two flows for each peer, out and in.
func (m MeasureArgs) Plan() Plan {
	p := Plan{
		Number: uint64(clock.Now()), Ends: append([]ProbeEnd{m.ProbeEnd}, m.Peers...), Count: m.Count, Every: m.Every,
		Size: m.Size, Echo: m.Echo,
		Patience: m.Patience,
	}
	for i := range m.Peers {
		if m.Out {
			p.Flows = append(p.Flows, PlannedFlow{To: i + 1})
		}
		if m.In {
			p.Flows = append(p.Flows, PlannedFlow{From: i + 1})
		}
	}
	return p
}

// Plan has a flow from the target to itself, and then two for each peer, out and in.
func (a ProbeArgs) Plan() Plan {
	p := Plan{
		Number: uint64(clock.Now()), Ends: append([]ProbeEnd{a.ProbeEnd}, a.Peers...), Flows: []PlannedFlow{{}},
		Count: max(ProbeLeast, int(a.Patience/probeEvery)+1), Every: probeEvery, Patience: a.Patience, Probe: true,
		Control: a.Control,
	}
	for i := range a.Peers {
		p.Flows = append(p.Flows, PlannedFlow{To: i + 1, Dial: a.DialOut}, PlannedFlow{From: i + 1, Dial: a.DialIn})
	}
	return p
}

// each calls f for every flow between the target and a peer.
func (p Plan) each(f func(flow, peer int, outward bool)) {
	for i, flow := range p.Flows {
		switch {
		case flow.From != 0:
			f(i, flow.From-1, false)
		case flow.To != 0:
			f(i, flow.To-1, true)
		}
	}
}

// Take sorts what was seen of a plan by peers.
func (m *Measured) Take(p Plan, s Sight) {
	m.Peers = make([]MeasuredLink, len(p.Ends)-1)
	p.each(func(flow, peer int, outward bool) {
		if outward {
			m.Peers[peer].Out = s.Flows[flow]
		} else {
			m.Peers[peer].In = s.Flows[flow]
		}
	})
}

// Take sorts what was seen of a plan by peers.
func (r *ProbeResult) Take(p Plan, s Sight) {
	r.Self, r.Control, r.Peers = s.Arrivals[0].Arrived, s.Control, make([]Seen, len(p.Ends)-1)
	p.each(func(flow, peer int, outward bool) {
		if outward {
			r.Peers[peer].Out = s.Arrivals[flow]
		} else {
			r.Peers[peer].In = s.Arrivals[flow]
		}
	})
}

// Join makes one sight of a plan out of those of its sides. by says for each end which side's it is.
func (p Plan) Join(sides []Sight, by []int) (Sight, error) {
	for _, s := range sides {
		if p.Probe && len(s.Arrivals) != len(p.Flows) || !p.Probe && len(s.Flows) != len(p.Flows) {
			return Sight{}, errors.New("an agent answered about fewer links than it was asked about")
		}
	}
	out := Sight{Control: sides[by[0]].Control}
	for i, flow := range p.Flows {
		from, to := by[flow.From], by[flow.To]
		switch {
		case p.Probe && from == to:
			out.Arrivals = append(out.Arrivals, sides[from].Arrivals[i])
		case p.Probe:
			out.Arrivals = append(out.Arrivals, joinArrivals(sides[from].Arrivals[i], sides[to].Arrivals[i]))
		case from == to:
			out.Flows = append(out.Flows, sides[from].Flows[i])
		default:
			out.Flows = append(out.Flows, joinFlows(sides[from].Flows[i], sides[to].Flows[i]))
		}
	}
	return out, nil
}

// joinFlows joins what the agents of a flow's sender and of its receiver saw. The receiver's has subtracted times by
// two clocks, which may be days apart. So of one-way times only the differences mean something, and they are laid above
// half of the shortest round trip.
func joinFlows(sender, receiver Flow) Flow {
	out := receiver
	out.Sent, out.Round, out.TwoClocks = sender.Sent, sender.Round, true
	if out.Arrived > 0 {
		by := sender.Round.Low/2 - receiver.OneWay.Low
		out.OneWay = Spread{
			Low: receiver.OneWay.Low + by, Mid: receiver.OneWay.Mid + by,
			High: receiver.OneWay.High + by, Max: receiver.OneWay.Max + by,
		}
	}
	return out
}

// joinArrivals does likewise. The sender knows by the echo after what time one arrived, unless nothing comes back.
func joinArrivals(sender, receiver Arrival) Arrival {
	out := receiver
	out.Sent, out.Dial, out.Took = sender.Sent, sender.Dial, sender.Took
	if out.Arrived && sender.After > 0 {
		out.After = sender.After
	}
	return out
}
