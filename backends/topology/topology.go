// Package topology defines a lock service as a provider needs it: the contract of a service's nodes and of the handle
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
	// Profile is the backend's number in docker-compose.yml, from 1, and unique. The network and ports of its profile
	// are derived from it. It must not change, so that users who attached to them find them again. 0 if there are no
	// server nodes.
	Profile int
	// Syncing is the scenario's keys, as YAML, that make the servers sync writes to disk; "" if they always do.
	Syncing string
	// New creates the topology from the scenario. decode fills a struct with the backend's own parameters, strictly.
	// An error names the invalid key and what would be valid.
	New func(c Common, decode func(into any) error) (Topology, error)
	// Attachable names the ports, one kind of endpoint each, through which the locks can run on external servers;
	// nil: they cannot. Its Service is then a Guest.
	Attachable []string
	// OneThread means that each server answers all commands on one thread, which one core can saturate.
	OneThread bool
	// BuiltIn are the Go modules of a server that is built into this program.
	BuiltIn []string
	// Health is the compose health check with which a container of the service's image checks that its node answers
	// at that port. Nil if the nodes are lockquake's own program, which checks itself.
	Health func(port int) []string
}

// Common is what every backend gets.
type Common struct {
	Nodes int           // 0: the backend's default
	TTL   time.Duration // lease, session or key life
	Lock  string        // name of the lock
	// Attached is set if the servers are external; nil: they are the run's own.
	Attached *Attached
}

// Topology is a service to be run.
type Topology interface {
	// Specs returns the server nodes.
	Specs() []node.Spec
	// Params returns the value that clients get, as JSON, in Access.Params and that the lock's Dial decodes.
	Params() any
	// Service returns the handle on the running nodes. Before a run nodes is nil; the handle then only answers its
	// Facts and which optional interfaces it has.
	Service(nodes []node.Handle) Service
}

// WallClocked is a Topology that decides by itself, for example by its servers' version, whether Offers.WallClock
// holds for its locks.
type WallClocked interface {
	// WallClock reports whether grants expire by the wall clock of servers.
	WallClock() bool
}

// Service is a running topology, asked from outside all faults.
type Service interface {
	chaos.Observer
	// Ready makes one attempt at a real write, through a quorum if there is one. It returns nil if the service
	// serves.
	Ready(ctx context.Context) error
	// Describe returns versions and settings for env.json and reports, including the lock's retry policy.
	Describe(ctx context.Context) map[string]string
	// Close frees connections; the nodes stay.
	Close() error
}

// SessionLister is a Service whose grants name no end and last as long as a session. The engine asks it continually:
// a holder is entitled only while the service certainly has its session.
type SessionLister interface {
	// Sessions returns all sessions of lock users that the service has now.
	Sessions(ctx context.Context) ([]Session, error)
}

// Keeper is a Service whose servers keep locks independently, so that they may disagree about the holder.
type Keeper interface {
	// Keepers returns the servers that can be asked for history.FactHolder of a lock.
	Keepers() []string
}

// Session is a lock user's session with the service.
type Session struct {
	User history.User
	ID   string // unique among all sessions, including former ones
	// Stands is true if the session certainly had not begun to end when the service was asked.
	Stands bool
}
