package links

import "time"

// The orders on links, by name.
const (
	DoFilter   = "filter"   // FilterArgs; blocks packets until undone; the undo answers Filtered
	DoFiltered = "filtered" // the key of a filter as its argument; answers Filtered
	DoProbe    = "probe"    // ProbeArgs, with the processes of the target and the peers; answers ProbeResult
)

// What a Rule does to its packets.
const (
	Drop   = "drop"   // they vanish
	Reject = "reject" // their sender gets an error at once: a reset for TCP, port unreachable for the rest
	Hold   = "hold"   // they wait, and are released in order when the filter is undone
)

// Rule matches packets between a process's node and another node, and says what is done to them.
type Rule struct {
	Node     string `json:"-"`                   // name of the other node, as the fault gives it
	Peer     string `json:"peer"`                // its IPv4 address; filled in by the node that is asked
	Out      bool   `json:"out,omitempty"`       // packets to the other node; else those from it
	Port     uint16 `json:"port,omitempty"`      // TCP and UDP port at the process's own end; 0: any packet
	PeerPort uint16 `json:"peer_port,omitempty"` // TCP and UDP port at the other end; 0: any packet
	How      string `json:"how"`                 // Drop, Reject, Hold or Shape
}

// FilterArgs are the arguments of DoFilter. An order with the same key, for the process that replaced the first one,
// moves the filter to it.
type FilterArgs struct {
	Rules   []Rule   `json:"rules"`
	Shaping *Shaping `json:"shaping,omitempty"` // for rules with Shape
}

// Filtered is what a filter has met.
type Filtered struct {
	Packets uint64 `json:"packets"` // by the kernel's counters of the rules
	Held    int    `json:"held"`    // packets that wait now; in the answer to an undo, those released
	// Shaped counts what became of shaped packets.
	Shaped *Shaped `json:"shaped,omitempty"`
	// Left names our tables in the namespace that belong to no active filter. Only an undo answers it.
	Left []string `json:"left,omitempty"`
	// Others counts the filters that are still active there. Only an undo answers it.
	Others int `json:"others,omitempty"`
}

// ProbeArgs are the arguments of DoProbe. The agent opens sockets in the namespaces of the target and its peers, and
// sends datagrams between them.
type ProbeArgs struct {
	ProbeEnd               // the target's
	Peers    []ProbeEnd    `json:"peers"`              // in the order of the processes
	Patience time.Duration `json:"patience_ns"`        // how long to wait for an arrival, at least
	DialOut  bool          `json:"dial_out,omitempty"` // open TCP connections to the peers too, whatever the ports
	DialIn   bool          `json:"dial_in,omitempty"`  // and from them
	Control  string        `json:"control,omitempty"`  // "host:port" on which the target listens, dialled from inside
}

// ProbeEnd is one end of a link.
type ProbeEnd struct {
	Address string `json:"address"`        // filled in by the node that is asked
	Port    uint16 `json:"port,omitempty"` // of the datagrams at this end; 0: any free one
}

// ProbeResult is what arrived.
type ProbeResult struct {
	Self    bool   `json:"self"`    // a datagram from the target to itself arrived
	Control string `json:"control"` // "" when the dial of Control succeeded, or was not asked for
	Peers   []Seen `json:"peers"`   // in the order of the request
}

// Seen is what a probe saw of one link.
type Seen struct {
	// Missing means that the peer has no process, and so no end to probe. The node that is asked sets it.
	Missing bool `json:"missing,omitempty"`

	Out Arrival `json:"out"` // from the target to the peer
	In  Arrival `json:"in"`  // from the peer to the target
	// Shake is the result of connections to an external peer, in place of Out and In. The node that is asked fills it
	// in.
	Shake *Arrival `json:"-"`
}

// Arrival is the result of the datagrams, and of a dial, in one direction.
type Arrival struct {
	Arrived bool `json:"arrived"`
	// from the first sending to the first arrival; between two agents, according to the echo
	After time.Duration `json:"after_ns"`
	Sent  int           `json:"sent"`           // datagrams
	Dial  string        `json:"dial,omitempty"` // Connected, Refused, or another outcome as text
	Took  time.Duration `json:"took_ns,omitempty"`
}

// Outcomes of a dial.
const (
	Connected = "connected"
	Refused   = "refused"
	Silent    = "no answer"
)
