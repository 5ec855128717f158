package chaos

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The capabilities that faults need which shape links. A provider tries before it offers them.
const (
	CanShape    Capability = "shape"    // Shaper, by whatever engine
	CanNetem    Capability = "netem"    // Shaper, by the kernel's own
	CanQueue    Capability = "queue"    // Shaper, by the agent
	CanThrottle Capability = "throttle" // Shaper, by the kernel's token bucket
)

// Bend is what becomes of packets that a LinkRule meets whose Shaping stands at the node: they are shaped.
const Bend = "shape"

// Engine is what shapes packets.
type Engine string

// The engines.
const (
	Netem Engine = "netem" // the kernel's own, where packets leave their sender
	Queue Engine = "queue" // the agent, to which the receiver's kernel hands packets
	TBF   Engine = "tbf"   // the kernel's token bucket, where packets leave; for a rate only
)

// atSender tells at which end of a link the engine stands.
func (e Engine) atSender() bool { return e != Queue }

func (e Engine) String() string {
	switch e {
	case Netem:
		return "netem of the kernel"
	case Queue:
		return "the agent's queue"
	case TBF:
		return "the kernel's token bucket"
	}
	return string(e)
}

// Shaping is what is done to packets. Shares and correlations are from 0 to 1.
type Shaping struct {
	Engine      Engine
	Delay       time.Duration
	Jitter      time.Duration // evenly between Delay - Jitter and Delay + Jitter
	Loss        float64       // share of packets that vanish
	Duplicate   float64       // that arrive twice
	Reorder     float64       // that go at once while the others wait for Delay
	Corrupt     float64       // in which one bit is turned
	Rate        uint64        // bits per second
	Correlation float64       // how much the fate of one packet is that of the one before it
	Seed        uint64        // of what is left to chance, where the engine takes one
}

// Shaper is a node at whose own end of its links packets can be delayed, lost and so on.
type Shaper interface {
	// Engines tries which engines there are, and says for each why it cannot be had; "" when it can.
	Engines(ctx context.Context) (map[Engine]string, error)
	// Shape puts up rules under a key that is unique in the run, whose packets are shaped. It is undone by Unfilter, and
	// outlasts a restart of the node, as filters do.
	Shape(ctx context.Context, key string, rules []LinkRule, s Shaping) error
	// MeasureLinks sends numbered datagrams over links, by sockets that are no part of the nodes' own processes.
	MeasureLinks(ctx context.Context, m LinkMeasure) ([]LinkMeasured, error)
}

// LinkMeasure says what is sent over the links to the peers, and from them.
type LinkMeasure struct {
	Peers    []Node
	Port     int          // at the node's end; 0: any free one
	PeerPort map[Node]int // at a peer's end; none: any free one
	Count    int          // datagrams in each direction of each link
	Every    time.Duration
	Size     int // bytes of payload; 0: as small as can be
	Out, In  bool
	Echo     bool          // measure round trips too
	Patience time.Duration // how long arrivals are waited for after the last was sent
}

// LinkMeasured is what was seen of the link to one peer.
type LinkMeasured struct {
	Peer    Node
	Missing bool // the peer has no process, and so no end to measure at
	Out, In Flow
}

// Flow is what became of the datagrams of one direction of a link.
type Flow struct {
	Sent    int
	Arrived int     // different ones
	Copies  int     // beyond the first of each
	Leapt   int     // arrived before one that was sent earlier
	OneWay  Spread  // from the sending to the arrival
	Round   Spread  // from the sending to the echo's arrival
	Bits    float64 // per second on the wire
	Damaged uint64  // by how much the receiver's kernel raised its counts of wrong checksums, for whatever traffic
}

// Spread describes durations by their quantiles of 5, 50 and 95 % and the longest.
type Spread struct{ Low, Mid, High, Max time.Duration }

// Shaped is what an engine has counted.
type Shaped struct {
	Engine    Engine
	Waiting   int    // packets, now
	Passed    uint64 // sent on
	Lost      uint64 // on purpose, where the engine tells
	Corrupted uint64 // likewise
	Dropped   uint64 // for want of room; with netem those that were lost on purpose as well
	// How late packets were sent on after the time that was chosen for them, where the engine tells: half of them, 99 %, all.
	LateMid, LateP99, LateMax time.Duration
}

func (s *Shaped) String() string {
	if s == nil {
		return "its engine tells nothing"
	}
	text := fmt.Sprintf("it sent on %d packets", s.Passed)
	for _, c := range []struct {
		n    uint64
		what string
	}{{s.Lost, "lost"}, {s.Corrupted, "corrupted"}, {s.Dropped, "dropped by the kernel"}, {uint64(s.Waiting), "wait"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	if s.LateMax > 0 {
		text += fmt.Sprintf("; late by %v (half of them), %v (99 %%), %v (at most)", rounded(s.LateMid), rounded(s.LateP99), rounded(s.LateMax))
	}
	return text
}

// rounded is for people.
func rounded(d time.Duration) time.Duration {
	if d.Abs() < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}

// Share is a part of packets, written in percent.
type Share float64

// UnmarshalYAML takes "30%" and "0.5%".
func (s *Share) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err == nil {
		number, ok := strings.CutSuffix(text, "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if ok && err == nil && !math.IsNaN(v) && v >= 0 && v <= 100 {
			*s = Share(v / 100)
			return nil
		}
	}
	return fmt.Errorf("want a share in percent, such as 30%% or 0.5%%")
}

func (s Share) String() string { return strconv.FormatFloat(float64(s)*100, 'g', 3, 64) + "%" }

// between tells that a share must be given, and may be told by a receipt.
func (s Share) between(fault string, low, high Share) error {
	if s < low || s > high {
		return fmt.Errorf("%s needs share: %v to %v of the packets", fault, low, high)
	}
	return nil
}

// The smallest share that a receipt can tell from none in the time that it has.
const leastShare Share = 0.001

// OnLinks is the keys of all faults that shape links.
type OnLinks struct {
	// To is the other side: selectors or names; default everybody else in the run.
	To Names `yaml:"to"`
	// Direction is both, out (what the targets send) or in (what is sent to them).
	Direction Direction `yaml:"direction"`
	// Port and PeerPort limit it to packets from and to a port at the targets' and at the others' end.
	Port     PortName `yaml:"port"`
	PeerPort PortName `yaml:"peer_port"`
	// Engine is auto, or the one that must do it.
	Engine Engine `yaml:"engine"`
}

func everyLink() OnLinks { return OnLinks{To: Names{Rest}, Direction: Both, Engine: anyEngine} }

// anyEngine takes netem where the kernel has it, else the agent's queue.
const anyEngine Engine = "auto"

func (o OnLinks) check() error {
	if !slices.Contains([]Engine{anyEngine, Netem, Queue}, o.Engine) {
		return fmt.Errorf("engine is %q: want auto, netem (of the kernel) or queue (of the agent)", string(o.Engine))
	}
	return o.Direction.check()
}

// Far names the other side.
func (o OnLinks) Far() Names { return o.To }

// Ports names the ports that the ends must have.
func (o OnLinks) Ports() (own, far PortName) { return o.Port, o.PeerPort }

// engines lists those that may do it, the best first.
func (o OnLinks) engines() []Engine {
	if o.Engine == anyEngine {
		return []Engine{Netem, Queue}
	}
	return []Engine{o.Engine}
}

// capabilities lists what the choice of an engine needs of the targets.
func (o OnLinks) capabilities() []Capability {
	switch o.Engine {
	case Netem:
		return []Capability{CanNetem}
	case Queue:
		return []Capability{CanQueue}
	}
	return []Capability{CanShape}
}
