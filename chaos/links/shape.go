package links

import "time"

// The orders on shaped links, by name.
const (
	// DoFilter with a Shaping shapes what the rules meet.

	DoEngines = "engines" // answers with Engines; of no process in particular
	DoMeasure = "measure" // MeasureArgs, with the peers' processes beside the target's; answers Measured
)

// Shape is what becomes of packets that a Rule meets whose FilterArgs have a Shaping.
const Shape = "shape"

// Engine is what shapes packets.
type Engine string

// The engines.
const (
	Netem Engine = "netem" // the kernel's own, where packets leave; it stands at the sender
	Queue Engine = "queue" // the agent, to which the kernel hands packets where they arrive; it stands at the receiver
	// the kernel's token bucket, where packets leave; it stands at the sender, and limits a rate only
	TBF Engine = "tbf"
)

// Shaping is what is done to packets. Shares are from 0 to 1, and so are correlations: how much the outcome of one
// packet follows that of the one before it.
type Shaping struct {
	Engine      Engine        `json:"engine"`
	Delay       time.Duration `json:"delay_ns,omitempty"`
	Jitter      time.Duration `json:"jitter_ns,omitempty"` // evenly between Delay - Jitter and Delay + Jitter
	Loss        float64       `json:"loss,omitempty"`      // share of packets that vanish
	Duplicate   float64       `json:"duplicate,omitempty"` // that arrive twice
	Reorder     float64       `json:"reorder,omitempty"`   // that go at once while the others wait for Delay
	Corrupt     float64       `json:"corrupt,omitempty"`   // in which one bit is turned
	Rate        uint64        `json:"rate,omitempty"`      // bits per second
	Correlation float64       `json:"correlation,omitempty"`
	Seed        uint64        `json:"seed,omitempty"` // of what is left to chance, where the engine takes one
}

// TBFBurst is how many bytes the token bucket lets pass at once, at a rate in bytes per second: 10 ms, and no less than
// two packets.
func TBFBurst(rate uint64) uint32 { return max(uint32(rate/100), 2*1600) }

// Shaped is what an engine counted.
type Shaped struct {
	Engine  Engine `json:"engine"`
	Waiting int    `json:"waiting"` // packets, now
	Passed  uint64 `json:"passed"`  // sent on, whenever
	// on purpose; where an engine does not tell them apart, Dropped has them too
	Lost      uint64 `json:"lost,omitempty"`
	Corrupted uint64 `json:"corrupted,omitempty"` // on purpose
	Dropped   uint64 `json:"dropped,omitempty"`   // for want of room, by the kernel's counters
	// How late packets were sent on after the time that was chosen for them; zero where the engine cannot tell.
	LateMid time.Duration `json:"late_mid_ns,omitempty"`
	LateP99 time.Duration `json:"late_p99_ns,omitempty"`
	LateMax time.Duration `json:"late_max_ns,omitempty"`
}

// Engines tells for each engine why it cannot be had; "" when it was tried and can.
type Engines map[Engine]string

// MeasureArgs are the arguments of DoMeasure: numbered datagrams are sent between the target's namespace and those of
// its peers, from sockets that the agent opens there for the purpose.
type MeasureArgs struct {
	ProbeEnd               // the target's
	Peers    []ProbeEnd    `json:"peers"`           // in the order of the processes
	Count    int           `json:"count"`           // datagrams in each direction of each link
	Every    time.Duration `json:"every_ns"`        // between two of them
	Size     int           `json:"size,omitempty"`  // bytes of a datagram's payload, at least the smallest
	Out      bool          `json:"out,omitempty"`   // measure what the target sends
	In       bool          `json:"in,omitempty"`    // and what is sent to it
	Echo     bool          `json:"echo,omitempty"`  // each datagram is answered, and the round trip measured
	Patience time.Duration `json:"patience_ns"`     // how long arrivals are waited for after the last was sent
	Burst    int           `json:"burst,omitempty"` // as in ShakeArgs, for peers that somebody else runs
}

// Measured answers DoMeasure.
type Measured struct {
	Peers []MeasuredLink `json:"peers"` // in the order of the request
}

// MeasuredLink is what was seen of one link.
type MeasuredLink struct {
	// Missing tells that the peer has no process, and so no end to measure at. The node that is asked says so.
	Missing bool `json:"missing,omitempty"`

	Out Flow `json:"out"` // from the target to the peer
	In  Flow `json:"in"`  // from the peer to the target
	// Shake is what was seen of connections to a peer that somebody else runs, in place of Out and In. The node that is
	// asked fills it in.
	Shake *Flow `json:"-"`
}

// Flow is what became of the datagrams of one direction of one link.
type Flow struct {
	Sent    int     `json:"sent"`
	Arrived int     `json:"arrived"` // different ones
	Copies  int     `json:"copies"`  // beyond the first of each
	Leapt   int     `json:"leapt"`   // arrived before one that was sent earlier
	OneWay  Spread  `json:"one_way"`
	Round   Spread  `json:"round"` // sending to echo's arrival, by the sender's clock alone
	Bits    float64 `json:"bits"`  // per second on the wire between the first and the last arrival, the first left out
	// Damaged is by how much the receiver's kernel raised its counts of wrong checksums meanwhile, for whatever
	// traffic.
	Damaged uint64 `json:"damaged"`
	// Refused counts connections that were refused.
	Refused int `json:"refused,omitempty"`
	// TwoClocks tells that its ends are those of two agents. How OneWay varies was measured then, and its level is a
	// guess: half of the shortest round trip, or zero where none was measured.
	TwoClocks bool `json:"two_clocks,omitempty"`
}

// Spread describes durations by their quantiles of 5, 50 and 95 % and the longest; zero when there were none.
type Spread struct {
	Low  time.Duration `json:"low_ns"`
	Mid  time.Duration `json:"mid_ns"`
	High time.Duration `json:"high_ns"`
	Max  time.Duration `json:"max_ns"`
}
