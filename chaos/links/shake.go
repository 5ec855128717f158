package links

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// DoShake is the order that opens connections from the target's namespace to servers that somebody else runs, where no
// socket of ours can be: ShakeArgs; answers Shaken. Nothing is sent over them.
//
// Example: client-1 has a delay of 50 ms to an attached redis-1. Its SYN waits for 50 ms in its own namespace, and so
// does the answer. A connection that took 0.2 ms now takes 100.3 ms.
const DoShake = "shake"

// ShakeArgs are the arguments of DoShake.
type ShakeArgs struct {
	Peers    []string      `json:"peers"`             // host:port
	Count    int           `json:"count"`             // connections to each peer
	Every    time.Duration `json:"every_ns"`          // between two of them
	Patience time.Duration `json:"patience_ns"`       // how long an answer to the last is waited for
	Burst    int           `json:"burst,omitempty"`   // bytes on the wire of datagrams that leave right before each
	OnPort   bool          `json:"on_port,omitempty"` // they are addressed to the peer's port
}

// BurstSize is the payload of a datagram of a burst.
const BurstSize = 1200

// Shaken answers DoShake. In a Flow of connections, those arrived that were answered at the first try, and copies are
// second answers.
type Shaken struct {
	Peers []Flow `json:"peers"` // in the order of the request
}

// foreign tells whether somebody else runs a node, so that nothing can be done or seen at its end.
func foreign(n chaos.Node) bool {
	f, ok := chaos.As[interface{ Foreign() bool }](n)
	return ok && f.Foreign()
}

// AtOwnEnd says what a fault needs of its targets where somebody else runs the far ends: what is sent there is shaped
// where it leaves, and what comes from there where it arrives, which the agent's queue can alone.
func (b shapeFault) AtOwnEnd() ([]chaos.Capability, error) {
	if !b.Direction.in() {
		return b.needs, nil
	}
	for _, e := range b.by {
		if e == Queue {
			return []chaos.Capability{CanQueue}, nil
		}
	}
	return nil, chaos.Unavailable{
		What: b.kind + " of what attached servers send", Never: true,
		Reason: fmt.Sprintf("%v shapes what leaves a node, and attached servers are not ours to enter; write direction: out", engineText(b.by[0])),
	}
}

// AtOwnEnd says that a partition needs its own end alone.
func (f partition) AtOwnEnd() ([]chaos.Capability, error) {
	return []chaos.Capability{CanFilter}, nil
}

// AtOwnEnd refuses: packets that wait in their sender's namespace go with it.
func (f holdBack) AtOwnEnd() ([]chaos.Capability, error) {
	return nil, chaos.Unavailable{
		What: "hold-back of packets to attached servers", Never: true,
		Reason: "they would have to wait in the servers' namespaces, which are not ours to enter; name other ends, such as the resource, or use partition",
	}
}

// ways is how many directions a fault hits that a connection needs.
func (d Direction) ways() int {
	if d == Both {
		return 2
	}
	return 1
}

// share is the part of a lane's datagrams, or connections, that a fault hits which hits a part of the packets each way.
func (l shapedLane) share(s Share) float64 {
	if l.ways == 2 {
		return 1 - (1-float64(s))*(1-float64(s))
	}
	return float64(s)
}

// times is how often a delay of packets shows in what was measured.
func (l shapedLane) times(d time.Duration) time.Duration { return time.Duration(max(l.ways, 1)) * d }
