package links

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/chaos"
)

// The orders on TCP connections, by name.
const (
	// ConnectionsArgs; answers the established Connections of the process's network namespace
	DoConnections = "connections"
	// the Connections to end; answers Ended
	DoReset = "reset"
)

// CanReset is the capability of a Resetter.
const CanReset chaos.Capability = "reset"

// Resetter is a node whose established TCP connections can be listed and ended at its own end.
type Resetter interface {
	// Connections returns the established connections with any of the peers. Port 0 means any port.
	Connections(ctx context.Context, peers []chaos.Node, own uint16, far []uint16) ([]Connection, error)
	// Reset ends those of the connections that still exist.
	Reset(ctx context.Context, those []Connection) (Ended, error)
}

// Ended says how connections ended.
type Ended struct {
	Reset   int `json:"reset"`   // each end got a reset segment: its calls fail with ECONNRESET
	Aborted int `json:"aborted"` // only the other end got one: calls at this end fail with ECONNABORTED
	// Why the last of the aborted connections could not be reset.
	Why string `json:"why,omitempty"`
}

// String describes aborted connections; it is empty if there are none.
func (e Ended) String() string {
	if e.Aborted == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them were aborted, so calls at this end fail with ECONNABORTED: %s", e.Aborted, e.Why)
}

// ConnectionsArgs are the arguments of DoConnections.
type ConnectionsArgs struct {
	With []Rule `json:"with"` // the peers and ports; a connection must match one
}

// Connection is a TCP connection as the kernel at one end lists it.
type Connection struct {
	Node     string `json:"-"`         // at the other end; filled in by the node that is asked
	Peer     string `json:"peer"`      // its IPv4 address
	Own      string `json:"own"`       // address at the end that was asked
	Port     uint16 `json:"port"`      // at the end that was asked
	PeerPort uint16 `json:"peer_port"` // at the other
	Cookie   uint64 `json:"cookie"`    // the kernel's number of the socket, never reused
}

// among returns those of some that are still in now.
func among(some, now []Connection) []Connection {
	return slices.DeleteFunc(slices.Clone(some), func(c Connection) bool {
		return !slices.ContainsFunc(now, func(n Connection) bool { return n.Cookie == c.Cookie })
	})
}

// perPeer returns the number of connections per peer, such as "client-1 (3), client-2 (1)".
func perPeer(all []Connection) string {
	count := map[string]int{}
	var names []string
	for _, c := range all {
		if count[c.Node]++; count[c.Node] == 1 {
			names = append(names, c.Node)
		}
	}
	slices.Sort(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("%s (%d)", n, count[n])
	}
	return strings.Join(names, ", ")
}
