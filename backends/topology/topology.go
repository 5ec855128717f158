// Package topology is what is locked, as a provider needs it: the contract of a service's nodes, and of the handle
// on them. It does not know the other half, the locks that run on the service.
package topology

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
)

// Maker makes the topology of a backend.
type Maker struct {
	// Profile is its number in docker-compose.yml, from 1, which no other backend has: its network and ports there are
	// made of it. It stays, so that those who attached to them find them again. 0 where there are no server nodes.
	Profile int
	// Syncing is the scenario's keys, as YAML, with which the servers sync to disk what they write; "" where they do so
	// anyway.
	Syncing string
	// New makes the topology from the scenario; decode fills a struct with the backend's own parameters, strictly. An
	// error names the key that is wrong and what would be right.
	New func(c Common, decode func(into any) error) (Topology, error)
	// Attachable names the ports by which the locks run on servers that somebody else runs, one kind of endpoint each;
	// nil: they cannot. Its Service is then a Guest.
	Attachable []string
	// OneThread says that each server answers all commands by one thread, which a single core can fill.
	OneThread bool
	// BuiltIn are the Go modules of a server that this program has within it.
	BuiltIn []string
	// Health is the check, as compose writes it, by which a container of the service's image finds out whether its own
	// node answers at that port. Nil where the nodes are lockquake's own program, which asks for itself.
	Health func(port int) []string
}

// Common is what every backend is told.
type Common struct {
	Nodes int           // 0: the backend's default
	TTL   time.Duration // lease, session or key life
	Lock  string        // name of the lock
	// Attached says that somebody else runs the servers; nil: they are the run's own.
	Attached *Attached
}

// Topology is a service about to be run.
type Topology interface {
	// Specs describes the server nodes.
	Specs() []node.Spec
	// Params is handed to the clients in Access.Params: whatever the lock's Dial decodes, as a value that marshals to
	// JSON.
	Params() any
	// Service returns the handle on the running nodes. nodes is nil before a run: the handle is then asked only for its
	// Facts, and for which optional interfaces it has.
	Service(nodes []node.Handle) Service
}

// WallClocked is a Topology that decides by itself, such as by the version of its servers, what Offers.WallClock says
// of its locks.
type WallClocked interface {
	// WallClock tells whether grants that expire do so by the wall clock of servers.
	WallClock() bool
}

// Service is a running topology, asked from outside any fault.
type Service interface {
	chaos.Observer
	// Ready makes one attempt to have a real write served (through a quorum where there is one). It returns nil when
	// the service serves.
	Ready(ctx context.Context) error
	// Describe returns versions and settings for env.json and reports, the retry policy of the lock included.
	Describe(ctx context.Context) map[string]string
	// Close frees connections; the nodes stay.
	Close() error
}

// SessionLister is a Service whose grants name no end and last as long as a session. The engine asks it all the
// time: a holder is entitled only while the service certainly has its session.
type SessionLister interface {
	// Sessions asks the service for all sessions of lock users that it has now.
	Sessions(ctx context.Context) ([]Session, error)
}

// Keeper is a Service whose servers keep locks independently, so that they may disagree about who has one.
type Keeper interface {
	// Keepers names the servers that can be asked for history.FactHolder of a lock.
	Keepers() []string
}

// Session is a lock user's session with the service.
type Session struct {
	User history.User
	ID   string // tells it from all other sessions, former ones too
	// Stands is true where it certainly had not begun to end when the service was asked.
	Stands bool
}
