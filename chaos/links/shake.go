package links

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// DoShake is the order that opens connections from the target's namespace to external servers, where we cannot open
// sockets: ShakeArgs; answers Shaken. Nothing is sent over them.
//
// Example: client-1 has a delay of 50 ms to an attached redis-1. Its SYN waits for 50 ms in its own namespace, and so
// does the answer. A connection that took 0.2 ms now takes 100.3 ms.
const DoShake = "shake"

// ShakeArgs are the arguments of DoShake.
type ShakeArgs struct {
	Peers    []string      `json:"peers"`             // host:port
	Count    int           `json:"count"`             // connections to each peer
	Every    time.Duration `json:"every_ns"`          // between two of them
	Patience time.Duration `json:"patience_ns"`       // how long to wait for an answer to the last
	Burst    int           `json:"burst,omitempty"`   // bytes on the wire of the datagrams sent right before each
	OnPort   bool          `json:"on_port,omitempty"` // they are addressed to the peer's port
}

// BurstSize is the payload of a datagram of a burst.
const BurstSize = 1200

// Shaken answers DoShake. In its Flows, Arrived counts connections answered at the first try, and Copies second
// answers.
type Shaken struct {
	Peers []Flow `json:"peers"` // in the order of the request
}

// foreign reports whether the node is external, so that nothing can be done or seen at its end.
func foreign(n chaos.Node) bool {
	f, ok := chaos.As[interface{ Foreign() bool }](n)
	return ok && f.Foreign()
}

// AtOwnEnd returns what a fault needs of its targets if the peers are external: outgoing packets are shaped on egress
// and incoming ones on ingress. Only the agent's queue can do the latter.
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
		What: b.kind + " of packets from attached servers", Never: true,
		Reason: fmt.Sprintf("%v shapes outgoing packets, and lockquake cannot enter attached servers; write direction: out", engineText(b.by[0])),
	}
}

// AtOwnEnd returns the needs of a partition, which works at one end.
func (f partition) AtOwnEnd() ([]chaos.Capability, error) {
	return []chaos.Capability{CanFilter}, nil
}

// AtOwnEnd returns an error: packets that wait in their sender's namespace are lost with it.
func (f holdBack) AtOwnEnd() ([]chaos.Capability, error) {
	return nil, chaos.Unavailable{
		What: "hold-back of packets to attached servers", Never: true,
		Reason: "they would have to wait in the servers' namespaces, which lockquake cannot enter; name other ends, such as the resource, or use partition",
	}
}

// ways returns how many of the two directions a fault hits; a connection needs both.
func (d Direction) ways() int {
	if d == Both {
		return 2
	}
	return 1
}

// share returns the share of a lane's datagrams or connections that are hit, given the share of packets hit each way.
func (l shapedLane) share(s Share) float64 {
	if l.ways == 2 {
		return 1 - (1-float64(s))*(1-float64(s))
	}
	return float64(s)
}

// times returns the total delay of a measured time: a delay hits it once per affected direction.
func (l shapedLane) times(d time.Duration) time.Duration { return time.Duration(max(l.ways, 1)) * d }
