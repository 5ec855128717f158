// Package resource defines what a lock protects: services that hold one number for each lock, log every access, and
// may guard the number, for example by fencing tokens. This folder has the contract; each service has a folder below,
// and all lists them.
package resource

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
)

// Guard describes, as data, a way in which a resource may protect itself.
type Guard struct {
	Name string
	Doc  string // one sentence: what it refuses
	// Token says that the guard compares fencing tokens, so that the lock must have one.
	Token bool
	// Conditional says that the step that applies a write also compares what its writer had read, or changes the
	// current value without using it. Then a late write does no harm.
	Conditional bool
	// Writes is the meaning of the workload's writes that the guard needs; "" is any.
	Writes workloads.Meaning
	// Sequencer says that the guard asks the lock service (lock.SequencerChecker), so the lock must support that.
	Sequencer bool
	// TwoSteps says that a write is checked in one step and applied in another. The writer announces
	// PointTokenChecked in between.
	TwoSteps bool
}

// Kind is an entry of the list of resources.
type Kind struct {
	Name   string
	Doc    string  // one sentence
	Guards []Guard // the first is the default
	// Within names the backend whose service keeps the values: the same one that grants the locks. "" if the resource
	// has its own servers.
	Within string
	// Specs describes the nodes of the resource. Users connect to the first port of those that have ports. Nodes with
	// a control stream (Stdio) speak the protocol: they get the start and report the effects.
	Specs func() []node.Spec
	// Replicated says that the nodes are replicas of one store, each with its own log. An effect counts once a
	// majority has applied it.
	Replicated bool
	// Dial connects one user to the resource.
	Dial func(ctx context.Context, t Target) (Connection, error)
	// Book is the ledger's part for a real service; nil if the resource logs itself.
	Book func() Book
}

// Conditional reports whether a guard of a list is conditional.
func Conditional(guards []Guard, name string) bool {
	return slices.ContainsFunc(guards, func(g Guard) bool { return g.Name == name && g.Conditional })
}

// Find returns the named resource.
func Find(kinds []Kind, name string) (Kind, bool) {
	for _, k := range kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// Target is the location of a resource.
type Target struct {
	Address string // host:port; several nodes are separated by commas
	Guard   string // the guard that the resource was started with
	// Password is the resource's password; "" if it needs none.
	Password string
	// Access is how the user's own client process reaches the lock service; for a resource within that service.
	Access json.RawMessage
}

// Access identifies the user, the value and the grant of an access.
type Access struct {
	Lock  string       // the lock that protects the value
	User  history.User // who
	Grant uint32       // the grant's number in the user's own history
	Token lock.Token   // fencing token, or lock.NoToken
	Mode  lock.Mode    // of the grant
	Owner string       // the lock's own name of the grant, mostly a random value; it has no order
}

// Connection is one user's link to a resource. Its methods are called one at a time. ErrFenced and ErrRefused mean
// that certainly nothing was done; after any other error the outcome is unknown.
type Connection interface {
	Read(ctx context.Context, a Access) (int64, error)
	Write(ctx context.Context, a Access, value int64) error
	Close() error
}

var (
	// ErrFenced says that the guard refused the access.
	ErrFenced = errors.New("refused by the guard")
	// ErrRefused says that the resource did not understand the request.
	ErrRefused = errors.New("refused by the resource")
)
