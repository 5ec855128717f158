// Package resource is what a lock protects: services that hold one number for each lock, keep a log of every access,
// and may guard the number, as by fencing tokens. The contract is here, with one folder for each service below; all
// is the list.
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

// Guard is a way in which a resource may protect itself, as data.
type Guard struct {
	Name string
	Doc  string // one sentence: what it refuses
	// Token says that it compares fencing tokens, so that the lock must have one.
	Token bool
	// Conditional says that the step that applies a write compares what its writer had read, or changes what stands
	// there without it. A late write does no harm then.
	Conditional bool
	// Writes is what the workload's writes must mean for it; "" is anything.
	Writes workloads.Meaning
	// Sequencer says that it asks the lock service (lock.SequencerChecker), so that the lock must be one that can be
	// asked.
	Sequencer bool
	// TwoSteps says that a write is looked at in one step and applied in another. The writer announces
	// PointTokenChecked in between.
	TwoSteps bool
}

// Kind is an entry of the list of resources.
type Kind struct {
	Name   string
	Doc    string  // one sentence
	Guards []Guard // the first is the default
	// Within names the backend whose service keeps the values: the very one that grants the locks. "" where the
	// resource has servers of its own.
	Within string
	// Specs describes the nodes that the resource is. Users reach those with a port, at their first one. Those with a
	// control stream (Stdio) speak the protocol: they are told what there is, and tell what was done to it.
	Specs func() []node.Spec
	// Replicated says that its nodes are replicas of one store, each with a log of its own: an effect counts when a
	// majority of them has applied it.
	Replicated bool
	// Dial connects one user to the resource.
	Dial func(ctx context.Context, t Target) (Connection, error)
	// Book is what the ledger beside a real service does; nil where the resource keeps its log itself.
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

// Target is where a resource is.
type Target struct {
	Address string // host:port; where there are several nodes, with commas between
	Guard   string // that it was started with
	// Password is what the resource asks for; "" where it asks for none.
	Password string
	// Access says how the user's own client process reaches the lock service; for a resource within it.
	Access json.RawMessage
}

// Access says who touches what, and by which grant.
type Access struct {
	Lock  string       // the lock that protects the value
	User  history.User // who
	Grant uint32       // the grant's number in the user's own history
	Token lock.Token   // fencing token, or lock.NoToken
	Mode  lock.Mode    // of the grant
	Owner string       // the lock's own name of the grant, mostly a random value; it has no order
}

// Connection is one user's link to a resource. Its methods are called one at a time. ErrFenced and ErrRefused mean that
// certainly nothing was done; after any other error nobody knows.
type Connection interface {
	Read(ctx context.Context, a Access) (int64, error)
	Write(ctx context.Context, a Access, value int64) error
	Close() error
}

var (
	// ErrFenced says that the guard refused the token.
	ErrFenced = errors.New("refused by the guard")
	// ErrRefused says that the resource did not understand the request.
	ErrRefused = errors.New("refused by the resource")
)
