// Package backends defines a lock service as a client process needs it: the contract of the locks that run on a
// service. Package topology has the provider's side, the service's nodes; package listed joins both. There is one
// folder per service, and one file per topology and per lock. Package all is the list.
package backends

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// Backend is a service in one topology, as its clients see it.
type Backend struct {
	Name  string // as scenarios write it: "redis", "etcd"
	Doc   string // one sentence
	Locks []Lock // the first is the default and is never a wrong one
	// InProcess is true if there are no server nodes and clients run as goroutines of the supervisor.
	InProcess bool
	// Modules are the Go modules with which a client speaks to the service. Reports name their versions.
	Modules []string
	Servers
}

// Misuse reports whether a key of a backend makes clients use its locks in an unsupported way. Such keys begin with
// "shared_": users share the object to which a lock belongs. What breaks then is the program, not the lock.
func Misuse(key string) bool { return strings.HasPrefix(key, "shared_") }

// Lock returns the named lock, or the default for "". Every backend has NoLock besides its listed locks.
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

// TokenSource says where a lock's fencing token comes from. The judge trusts only TokenService for order.
type TokenSource string

// The token sources.
const (
	TokenNone     TokenSource = "none"
	TokenService  TokenSource = "service"   // a number of the service's consensus or log
	TokenHomeMade TokenSource = "home-made" // a counter kept beside the lock
)

// Offers lists what a lock can do, as data.
type Offers struct {
	Blocking   bool        `json:"blocking"`    // Acquire waits in the service rather than by polling
	Try        bool        `json:"try"`         // lock.TryAcquirer
	Renewal    string      `json:"renewal"`     // "none", "call" (lock.Renewer), "background" (keep-alive)
	LossSignal bool        `json:"loss_signal"` // lock.Watcher reports losses
	Token      TokenSource `json:"token"`
	Reentrant  string      `json:"reentrant"` // "no", or the scope of its re-entry
	Fair       bool        `json:"fair"`      // grants in request order
	Expires    bool        `json:"expires"`   // a dead holder's grant ends by itself
	// expiry depends on the wall clock of servers or clients, which can be set
	WallClock bool `json:"wall_clock"`
	Shared    bool `json:"shared"` // knows lock.Shared beside lock.Exclusive
	// Reenters: a user may take a lock that it holds again, and the lock is free after as many releases. Permits: up to
	// Access.Permits users hold it at once.
	Reenters  bool `json:"reenters"`
	Permits   bool `json:"permits"`
	Sequencer bool `json:"sequencer"` // lock.SequencerChecker
}

// Lock is one way to lock on a backend.
type Lock struct {
	Name   string
	Doc    string // one sentence: recipe or library, and its source
	Wrong  string // "" for a sound lock, otherwise what is wrong with it
	Found  Found  // what finds the mistake of a wrong lock
	Absent bool   // it does not lock: all users go ahead at once
	// Modules are the Go modules of its clients, if they differ from the backend's.
	Modules []string
	Offers  Offers
	// Points lists what the adapter announces with lock.At, in the order of one cycle of a grant. The first point of
	// the acquire and the first of the release have names that begin with "before-"; no others do. An acquire that
	// asks a majority of servers has "replies-in". One that Waits has "wait-done".
	Points []string
	// YesToGone means that a release is also answered ok when the grant was gone: its library or service does not
	// say.
	YesToGone bool
	// Waits means that it can wait until replicas have a grant before the grant counts.
	Waits bool
	// MinTTL is the shortest TTL that the service honours; shorter ones are rejected at load time.
	MinTTL time.Duration
	// Recovery bounds the time to the next grant after a holder's death. Every lock states it: the judge, the suites
	// and the stories rely on it.
	Recovery Recovery
	// Hung bounds the time to the next grant after the last call of a user that hangs while its process lives. nil: the
	// lock renews grants for as long as the process lives, or not at all.
	Hung Recovery
	// Notes explain figures of this lock to a reader of a report.
	Notes []Note
	// Dial connects a client process.
	Dial func(ctx context.Context, a Access) (Connection, error)
}

// Note is shown if a measure lies between two figures, both included.
type Note struct {
	Measure     string
	Least, Most float64
	Text        string // whole sentences
}

// Recovery returns within what time the service must grant again after a holder's death. params is the JSON of
// Topology.Params; empty means the defaults.
type Recovery func(ttl time.Duration, params json.RawMessage) time.Duration

// Bound returns the lock's recovery time. It returns 0 for a lock that names no bound: NoLock, or an external lock
// that never expires.
func (l Lock) Bound(ttl time.Duration, params json.RawMessage) time.Duration {
	if l.Recovery == nil {
		return 0
	}
	return l.Recovery(ttl, params)
}

// RecoversIn returns a Recovery that depends on the TTL alone.
func RecoversIn(bound func(ttl time.Duration) time.Duration) Recovery {
	return func(ttl time.Duration, _ json.RawMessage) time.Duration { return bound(ttl) }
}

// RecoveryBy returns a Recovery that depends on decoded parameters. read decodes them, and returns the defaults if
// there are none. The defaults are also used if the parameters cannot be read.
func RecoveryBy[P any](read func(json.RawMessage) (P, error),
	bound func(ttl time.Duration, p P) time.Duration,
) Recovery {
	return func(ttl time.Duration, params json.RawMessage) time.Duration {
		p, err := read(params)
		if err != nil {
			p, _ = read(nil)
		}
		return bound(ttl, p)
	}
}

// Access is what a client process needs to reach the service. It travels as JSON.
type Access struct {
	Backend string          `json:"backend"`
	Lock    string          `json:"lock"`
	Nodes   []Endpoint      `json:"nodes"`
	TTL     time.Duration   `json:"ttl_ns"`
	Params  json.RawMessage `json:"params,omitempty"`
	Permits int             `json:"permits,omitempty"` // how many users may hold one lock at once; 0 means 1
	Run     string          `json:"run"`               // id of the run; the key of in-process services
	Client  int             `json:"client"`            // index of the client process within the run, from 0
	// Prefix begins every key, node, path or schema name that a client creates; "": the lock's own prefix, which
	// begins with "lockquake".
	Prefix string `json:"prefix,omitempty"`
	// Login is the credentials that the service requires.
	node.Login
	// Via maps an address of the service to the one to dial instead, for clients that learn addresses from the
	// service itself. It is set only by the conformance suite, which puts a proxy in front of each server.
	Via map[string]string `json:"via,omitempty"`
}

// Endpoint is a server node as clients see it.
type Endpoint struct {
	Name      string            `json:"name"`
	Addresses map[string]string `json:"addresses"` // port name -> host:port
	// Login is set if this node's credentials differ from the others', as for external Sentinels.
	Login *node.Login `json:"login,omitempty"`
}

// LoginAt returns the credentials for the nodes with the named port.
func (a Access) LoginAt(port string) node.Login {
	for _, n := range a.Nodes {
		if _, ok := n.Addresses[port]; ok && n.Login != nil {
			return *n.Login
		}
	}
	return a.Login
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

// DecodeParams decodes a client's parameters strictly into into; missing ones keep the defaults.
func DecodeParams(told json.RawMessage, into any) error {
	if len(told) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(told))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// Connection is a client process's link to the service.
type Connection interface {
	// Locker returns a locker for one user. If the service is re-entrant by session, each user gets its own session.
	Locker(ctx context.Context, user int) (lock.Locker, error)
	Close() error
}

// NotificationCounter is a Connection that counts how often the service has woken a waiter.
type NotificationCounter interface {
	// Notifications returns how many watch notifications the users of this process have received.
	Notifications() int64
}
