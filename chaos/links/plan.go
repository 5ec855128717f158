package links

import (
	"errors"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// The orders to one agent's side of a Plan, by name. They share one key, and the supervisor sends each to all sides
// before the next one.
//
// Example: redis-1 and redis-2 are on two hosts, each with its agent. Both agents open a socket in the namespace of
// their node and return its port. Then both send, and when the last has sent, both return what they saw. One sent 100
// datagrams, and each echo came back after 0.4 ms. The other saw 100 arrive in order. That makes one Flow.
const (
	// OpenArgs, with the processes of its ends; answers an OpenEnd for each. The undo closes them
	DoSideOpen = "side-open"
	DoSideSend = "side-send" // all ends as []OpenEnd; answers when the datagrams are sent and the dials made
	DoSideSeen = "side-seen" // answers a Sight, once all has arrived or timed out
)

// Plan is the traffic of a measurement or probe between the ends of some links, which belong to one agent or to
// several.
type Plan struct {
	Number   uint64        `json:"number"`   // distinguishes its datagrams from others
	Ends     []ProbeEnd    `json:"ends"`     // the target's, and then its peers'
	Flows    []PlannedFlow `json:"flows"`    // in the order in which they are answered
	Count    int           `json:"count"`    // datagrams on each flow
	Every    time.Duration `json:"every_ns"` // between two of them
	Size     int           `json:"size,omitempty"`
	Echo     bool          `json:"echo,omitempty"` // each datagram is answered
	Patience time.Duration `json:"patience_ns"`
	// Probe asks only whether anything arrives: a flow stops sending once something has. Patience then bounds the
	// sending.
	Probe   bool   `json:"probe,omitempty"`
	Control string `json:"control,omitempty"` // as in ProbeArgs
}

// PlannedFlow is one direction of one link. Its ends are indexes into the plan's.
type PlannedFlow struct {
	From int  `json:"from"`
	To   int  `json:"to"`
	Dial bool `json:"dial,omitempty"` // also open a TCP connection
}

// OpenArgs are the arguments of DoSideOpen.
type OpenArgs struct {
	Plan Plan  `json:"plan"`
	Own  []int `json:"own"` // indexes of the ends that this agent opens, in the order of the processes
}

// OpenEnd is an end that an agent has opened.
type OpenEnd struct {
	Socket   string `json:"socket"`             // host:port that datagrams go to
	Listener string `json:"listener,omitempty"` // host:port that is dialled
}

// Sight is what one agent saw of a plan: each flow as seen by its sender, its receiver, or both.
type Sight struct {
	Flows    []Flow    `json:"flows,omitempty"`    // of a measurement
	Arrivals []Arrival `json:"arrivals,omitempty"` // of a probe
	Control  string    `json:"control,omitempty"`
}

const (
	// probeEvery is the pause between two datagrams on one link; a lossy link still shows itself.
	probeEvery = 20 * time.Millisecond
	// ProbeLeast is how many datagrams a probe sends at least before a link counts as cut, however late the agent is
	// scheduled.
	ProbeLeast = 5
)

// Plan returns a plan with up to two flows for each peer, out and in.
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

// Plan returns a plan with a flow from the target to itself, and then two for each peer, out and in.
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

// Take assigns what was seen of a plan to its peers.
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

// Take assigns what was seen of a plan to its peers.
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

// Join merges the sights of a plan's sides. by has the side of each end.
func (p Plan) Join(sides []Sight, by []int) (Sight, error) {
	for _, s := range sides {
		if p.Probe && len(s.Arrivals) != len(p.Flows) || !p.Probe && len(s.Flows) != len(p.Flows) {
			return Sight{}, errors.New("an agent answered for fewer links than requested")
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

// joinFlows joins what the agents of a flow's sender and receiver saw. The receiver's agent subtracted times of two
// clocks, which may be days apart. So only the differences of one-way times mean something. They are added to half of
// the shortest round trip.
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

// joinArrivals does the same for arrivals. The sender knows from the echo when one arrived, unless nothing comes back.
func joinArrivals(sender, receiver Arrival) Arrival {
	out := receiver
	out.Sent, out.Dial, out.Took = sender.Sent, sender.Dial, sender.Took
	if out.Arrived && sender.After > 0 {
		out.After = sender.After
	}
	return out
}
