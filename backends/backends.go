// Package backends is what is locked: the contract of a service (a topology of nodes) and of the locks that run on it.
// One folder per service, one file per topology and per lock; backends/all is the list.
package backends

import (
	"context"
	"encoding/json"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/lock"
)

// Backend is a service in one topology.
type Backend struct {
	Name  string // as scenarios write it: "redis", "etcd"
	Doc   string // one sentence
	Locks []Lock // the first is the default and is never a wrong one
	// InProcess is true where there are no server nodes and clients run as goroutines of the supervisor.
	InProcess bool
	// Syncing is the scenario's keys, as YAML, with which the servers sync to disk what they write; "" where they do so anyway.
	Syncing string
	// New makes the topology from the scenario; decode fills a struct with the backend's own parameters, strictly. An
	// error names the key that is wrong and what would be right.
	New func(c Common, decode func(into any) error) (Topology, error)
}

// Lock returns the named lock, or the default for ""; every backend has NoLock beside those of its list.
func (b Backend) Lock(name string) (Lock, bool) {
	for _, l := range b.Locks {
		if l.Name == name || name == "" {
			return l, true
		}
	}
	if name == NoLock {
		return noLock(), true
	}
	return Lock{}, false
}

// Common is what every backend is told.
type Common struct {
	Nodes int           // 0: the backend's default
	TTL   time.Duration // lease, session or key life
	Lock  string        // name of the lock
}

// Topology is a service about to be run.
type Topology interface {
	// Specs describes the server nodes.
	Specs() []cluster.Spec
	// Params is handed to the clients in Access.Params: whatever the lock's Dial decodes, as a value that marshals to
	// JSON.
	Params() any
	// Service returns the handle on the running nodes.
	Service(nodes []*cluster.Node) Service
}

// WallClocked is a Topology that decides by itself, such as by the version of its servers, what Offers.WallClock says of its locks.
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

// SessionLister is a Service whose grants name no end and stand as long as a session. The engine asks it all the time: a
// holder whose session the service does not certainly have is not entitled.
type SessionLister interface {
	// Sessions asks the service for all sessions of lock users that it has now.
	Sessions(ctx context.Context) ([]Session, error)
}

// Keeper is a Service whose servers keep locks each for itself, so that they may disagree about who has one.
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

// TokenSource says where a lock's fencing token comes from. The judge trusts only TokenService for order.
type TokenSource string

// The token sources.
const (
	TokenNone     TokenSource = "none"
	TokenService  TokenSource = "service"   // a number of the service's consensus or log
	TokenHomeMade TokenSource = "home-made" // a counter kept beside the lock
)

// Offers is what a lock can do, as data.
type Offers struct {
	Blocking   bool        `json:"blocking"`    // Acquire waits in the service rather than by polling
	Try        bool        `json:"try"`         // lock.TryAcquirer
	Renewal    string      `json:"renewal"`     // "none", "call" (lock.Renewer), "background" (keep-alive)
	LossSignal bool        `json:"loss_signal"` // lock.Watcher reports losses
	Token      TokenSource `json:"token"`
	Reentrant  string      `json:"reentrant"`  // "no", or what it is re-entrant by
	Fair       bool        `json:"fair"`       // grants in the order of asking
	Expires    bool        `json:"expires"`    // a dead holder's grant ends by itself
	WallClock  bool        `json:"wall_clock"` // that end is told by the wall clock of servers or clients, which can be set
	Shared     bool        `json:"shared"`     // knows lock.Shared beside lock.Exclusive
	Sequencer  bool        `json:"sequencer"`  // lock.SequencerChecker
}

// Lock is one way to lock on a backend.
type Lock struct {
	Name   string
	Doc    string // one sentence: recipe or library, and its source
	Wrong  string // "" for a sound lock, else what is wrong with it
	Offers Offers
	// Points lists what the adapter announces with lock.At, in the order in which one cycle of a grant passes them.
	Points []string
	// MinTTL is the shortest TTL that the service honours; shorter ones are refused at load time.
	MinTTL time.Duration
	// Recovery returns within what time after the death of a holder the service must grant again. Only asked where
	// Offers.Expires.
	Recovery func(ttl time.Duration) time.Duration
	// RecoveryWith takes the place of Recovery where the bound depends on the backend's own parameters, which are what
	// Topology.Params returned, as JSON; may be nil.
	RecoveryWith func(ttl time.Duration, params json.RawMessage) time.Duration
	// Dial connects a client process.
	Dial func(ctx context.Context, a Access) (Connection, error)
}

// Bound returns within what time after the death of a holder the service must grant again, or 0 where the lock names no
// bound. params is what Topology.Params returned, as JSON.
func (l Lock) Bound(ttl time.Duration, params json.RawMessage) time.Duration {
	switch {
	case l.RecoveryWith != nil:
		return l.RecoveryWith(ttl, params)
	case l.Recovery != nil:
		return l.Recovery(ttl)
	}
	return 0
}

// WallClock tells whether the lock's grants end by a wall clock on that topology.
func (l Lock) WallClock(t Topology) bool {
	w, ok := t.(WallClocked)
	return l.Offers.WallClock || ok && l.Offers.Expires && w.WallClock()
}

// Access is what a client process needs to reach the service. It travels as JSON.
type Access struct {
	Backend string          `json:"backend"`
	Lock    string          `json:"lock"`
	Nodes   []Endpoint      `json:"nodes"`
	TTL     time.Duration   `json:"ttl_ns"`
	Params  json.RawMessage `json:"params,omitempty"`
	Run     string          `json:"run"`    // id of the run; the key of in-process services
	Client  int             `json:"client"` // index of the client process within the run, from 0
	// Via says where to dial instead of an address of the service, for clients that learn addresses from the service itself. Nil but
	// in the conformance suite, which puts a proxy before each server.
	Via map[string]string `json:"via,omitempty"`
}

// Endpoint is a server node as clients see it.
type Endpoint struct {
	Name      string            `json:"name"`
	Addresses map[string]string `json:"addresses"` // port name -> host:port
}

// Addresses returns the host:port of the named port of every node.
func (a Access) Addresses(port string) []string {
	var out []string
	for _, n := range a.Nodes {
		if s, ok := n.Addresses[port]; ok {
			out = append(out, s)
		}
	}
	return out
}

// Connection is a client process's link to the service.
type Connection interface {
	// Locker returns a locker for one user; where the service is re-entrant by session, each has a session of its own.
	Locker(ctx context.Context, user int) (lock.Locker, error)
	Close() error
}
