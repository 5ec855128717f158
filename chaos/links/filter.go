package links

import "time"

// The orders on links, by name.
const (
	DoFilter   = "filter"   // FilterArgs: keeps packets from arriving, until undone; the undo answers Filtered
	DoFiltered = "filtered" // the key of a filter as its argument; answers Filtered
	DoProbe    = "probe"    // ProbeArgs, with the peers' processes beside the target's; answers ProbeResult
)

// What becomes of packets that a Rule meets.
const (
	Drop   = "drop"   // they vanish
	Reject = "reject" // their sender is told at once: a reset for TCP, port unreachable for the rest
	Hold   = "hold"   // they wait, and go on in their order when the filter is undone
)

// Rule is one kind of packets between a process's node and another node, and what becomes of them.
type Rule struct {
	Node     string `json:"-"`                   // the other node, by its name, as a fault asks for it
	Peer     string `json:"peer"`                // its IPv4 address; the node that is asked fills it in
	Out      bool   `json:"out,omitempty"`       // packets to the other node; else those from it
	Port     uint16 `json:"port,omitempty"`      // TCP and UDP port at the process's own end; 0: any packet
	PeerPort uint16 `json:"peer_port,omitempty"` // TCP and UDP port at the other end; 0: any packet
	How      string `json:"how"`                 // Drop, Reject, Hold or Shape
}

// FilterArgs are the arguments of DoFilter. The same key again, for the process that took the first one's place,
// carries the filter over to it.
type FilterArgs struct {
	Rules   []Rule   `json:"rules"`
	Shaping *Shaping `json:"shaping,omitempty"` // of the rules that shape
}

// Filtered is what a filter has met.
type Filtered struct {
	Packets uint64 `json:"packets"` // by the kernel's counters of the rules
	Held    int    `json:"held"`    // packets that wait now; in the answer to an undo, those that were let go
	// Shaped is what became of packets that were shaped.
	Shaped *Shaped `json:"shaped,omitempty"`
	// Left names tables of ours in the namespace that no standing filter accounts for. Answered by an undo only.
	Left []string `json:"left,omitempty"`
	// Others counts the filters that still stand there. Answered by an undo only.
	Others int `json:"others,omitempty"`
}

// ProbeArgs are the arguments of DoProbe: datagrams are sent between the target's namespace and those of its peers,
// from sockets that the agent opens there for the purpose.
type ProbeArgs struct {
	ProbeEnd               // the target's
	Peers    []ProbeEnd    `json:"peers"`              // in the order of the processes
	Patience time.Duration `json:"patience_ns"`        // how long an arrival is waited for, at least
	DialOut  bool          `json:"dial_out,omitempty"` // open TCP connections to the peers too, whatever the ports
	DialIn   bool          `json:"dial_in,omitempty"`  // and from them
	Control  string        `json:"control,omitempty"`  // "host:port" at which the target listens, dialled from inside
}

// ProbeEnd is one end of a link.
type ProbeEnd struct {
	Address string `json:"address"`        // the node that is asked fills it in
	Port    uint16 `json:"port,omitempty"` // that datagrams come from and go to; 0: any free one
}

// ProbeResult tells what arrived.
type ProbeResult struct {
	Self    bool   `json:"self"`    // a datagram from the target to itself arrived
	Control string `json:"control"` // "" when the dial of Control succeeded, or was not asked for
	Peers   []Seen `json:"peers"`   // in the order of the request
}

// Seen is what a probe saw of one link.
type Seen struct {
	// Missing tells that the peer has no process, and so no end to probe. The node that is asked says so.
	Missing bool `json:"missing,omitempty"`

	Out Arrival `json:"out"` // from the target to the peer
	In  Arrival `json:"in"`  // from the peer to the target
	// Shake is what became of connections to a peer that somebody else runs, in place of Out and In. The node that is
	// asked fills it in.
	Shake *Arrival `json:"-"`
}

// Arrival is what became of the datagrams, and of a dial, in one direction.
type Arrival struct {
	Arrived bool `json:"arrived"`
	// from the first sending to the first arrival; between two agents as the echo shows it
	After time.Duration `json:"after_ns"`
	Sent  int           `json:"sent"`           // datagrams
	Dial  string        `json:"dial,omitempty"` // Connected, Refused, or another outcome in words
	Took  time.Duration `json:"took_ns,omitempty"`
}

// Outcomes of a dial.
const (
	Connected = "connected"
	Refused   = "refused"
	Silent    = "no answer"
)
