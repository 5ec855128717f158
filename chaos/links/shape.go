package links

import "time"

// The orders on shaped links, by name.
const (
	// DoFilter with a Shaping shapes the packets that the rules match.

	DoEngines = "engines" // answers Engines; concerns no process
	DoMeasure = "measure" // MeasureArgs, with the processes of the target and the peers; answers Measured
)

// Shape is the action of a Rule whose FilterArgs have a Shaping.
const Shape = "shape"

// Engine is a mechanism that shapes packets.
type Engine string

// The engines.
const (
	Netem Engine = "netem" // the kernel's own, on egress at the sender
	Queue Engine = "queue" // the agent, to which the kernel hands packets on ingress at the receiver
	// the kernel's token bucket, on egress at the sender; it only limits a rate
	TBF Engine = "tbf"
)

// Shaping describes how packets are shaped. Shares range from 0 to 1, and so do correlations: how much the outcome of
// one packet follows that of the one before it.
type Shaping struct {
	Engine      Engine        `json:"engine"`
	Delay       time.Duration `json:"delay_ns,omitempty"`
	Jitter      time.Duration `json:"jitter_ns,omitempty"` // uniform between Delay - Jitter and Delay + Jitter
	Loss        float64       `json:"loss,omitempty"`      // share of packets that vanish
	Duplicate   float64       `json:"duplicate,omitempty"` // that arrive twice
	Reorder     float64       `json:"reorder,omitempty"`   // that go at once while the others wait for Delay
	Corrupt     float64       `json:"corrupt,omitempty"`   // in which one bit is flipped
	Rate        uint64        `json:"rate,omitempty"`      // bits per second
	Correlation float64       `json:"correlation,omitempty"`
	Seed        uint64        `json:"seed,omitempty"` // of random choices, if the engine takes one
}

// TBFBurst returns how many bytes the token bucket passes at once, at a rate in bytes per second: 10 ms' worth, and at
// least two packets.
func TBFBurst(rate uint64) uint32 { return max(uint32(rate/100), 2*1600) }

// Shaped has the counts of an engine.
type Shaped struct {
	Engine  Engine `json:"engine"`
	Waiting int    `json:"waiting"` // packets, now
	Passed  uint64 `json:"passed"`  // forwarded, at any time
	// on purpose; included in Dropped if the engine does not distinguish them
	Lost      uint64 `json:"lost,omitempty"`
	Corrupted uint64 `json:"corrupted,omitempty"` // on purpose
	Dropped   uint64 `json:"dropped,omitempty"`   // queue full, by the kernel's counters
	// How late packets were forwarded after their chosen time; zero if the engine does not measure it.
	LateMid time.Duration `json:"late_mid_ns,omitempty"`
	LateP99 time.Duration `json:"late_p99_ns,omitempty"`
	LateMax time.Duration `json:"late_max_ns,omitempty"`
}

// Engines has for each engine why it is unavailable; "" if it was tested and works.
type Engines map[Engine]string

// MeasureArgs are the arguments of DoMeasure. The agent opens sockets in the namespaces of the target and its peers,
// and sends numbered datagrams between them.
type MeasureArgs struct {
	ProbeEnd               // the target's
	Peers    []ProbeEnd    `json:"peers"`           // in the order of the processes
	Count    int           `json:"count"`           // datagrams in each direction of each link
	Every    time.Duration `json:"every_ns"`        // between two of them
	Size     int           `json:"size,omitempty"`  // bytes of a datagram's payload, at least the smallest
	Out      bool          `json:"out,omitempty"`   // measure what the target sends
	In       bool          `json:"in,omitempty"`    // and what is sent to it
	Echo     bool          `json:"echo,omitempty"`  // each datagram is answered, and the round trip measured
	Patience time.Duration `json:"patience_ns"`     // how long to wait for arrivals after the last was sent
	Burst    int           `json:"burst,omitempty"` // as in ShakeArgs, for external peers
}

// Measured answers DoMeasure.
type Measured struct {
	Peers []MeasuredLink `json:"peers"` // in the order of the request
}

// MeasuredLink is what was seen of one link.
type MeasuredLink struct {
	// Missing means that the peer has no process, and so no end to measure at. The node that is asked sets it.
	Missing bool `json:"missing,omitempty"`

	Out Flow `json:"out"` // from the target to the peer
	In  Flow `json:"in"`  // from the peer to the target
	// Shake is the measurement of connections to an external peer, in place of Out and In. The node that is asked fills
	// it in.
	Shake *Flow `json:"-"`
}

// Flow is the measurement of one direction of one link.
type Flow struct {
	Sent    int     `json:"sent"`
	Arrived int     `json:"arrived"` // distinct ones
	Copies  int     `json:"copies"`  // beyond the first of each
	Leapt   int     `json:"leapt"`   // arrived before one that was sent earlier
	OneWay  Spread  `json:"one_way"`
	Round   Spread  `json:"round"` // sending to echo's arrival, by the sender's clock alone
	Bits    float64 `json:"bits"`  // per second on the wire between the first and the last arrival, the first left out
	// Damaged is the increase of the receiver kernel's counts of wrong checksums meanwhile, by any traffic.
	Damaged uint64 `json:"damaged"`
	// Refused counts connections that were refused.
	Refused int `json:"refused,omitempty"`
	// TwoClocks means that the ends belong to two agents. Then the variation of OneWay was measured, and its level is a
	// guess: half of the shortest round trip, or zero if none was measured.
	TwoClocks bool `json:"two_clocks,omitempty"`
}

// Spread describes durations by their 5, 50 and 95 % quantiles and their maximum; zero if there were none.
type Spread struct {
	Low  time.Duration `json:"low_ns"`
	Mid  time.Duration `json:"mid_ns"`
	High time.Duration `json:"high_ns"`
	Max  time.Duration `json:"max_ns"`
}
