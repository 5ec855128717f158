// Package chaos defines the contract of a fault, its targets, the schedule of injections and the stack of heals that
// undoes them. It knows no fault, no cluster and no service. The faults are in the folders below: one for each
// mechanism, with one file per fault; all lists them.
package chaos

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
)

// Node is a target: a server, a client or a resource. Faults use As to find out what can be done to it.
type Node interface {
	// Name is the node's name within the run, such as "etcd-2" or "client-1". Two values with one name are one node.
	Name() string
}

// As returns the value that implements T for a Node or an Observer: the value itself, one of the parts that its method
// Capabilities lists, or the Observer that it wraps.
func As[T any](of any) (able T, ok bool) {
	if able, ok = of.(T); ok {
		return able, true
	}
	switch o := of.(type) {
	case interface{ Capabilities() []any }:
		for _, part := range o.Capabilities() {
			if able, ok = part.(T); ok {
				return able, true
			}
		}
	case interface{ Unwrap() Observer }:
		return As[T](o.Unwrap())
	}
	return able, false
}

// Capability names an ability that a fault needs of a node.
type Capability string

// The capabilities that do not belong to one fault. The others are declared beside the faults that need them. Before a
// run the provider says for each capability whether it is available, or why not.
const (
	CanInspect Capability = "inspect" // Inspector
	CanPause   Capability = "pause"   // process.Pauser; a holder is paused while the fault is aimed at it
	CanStart   Capability = "start"   // Starter
)

// ProcessState is the state of a node's process as seen from outside the node.
type ProcessState = node.State

// Inspector is a node whose process can be seen from outside.
type Inspector interface {
	// Inspect reads the state of the node's process now.
	Inspect(ctx context.Context) (ProcessState, error)
}

// Starter is a node that can be started again, with the same address and data.
type Starter interface {
	// Start starts the node's process; it does not wait until it serves.
	Start(ctx context.Context) error
	// Running reports whether the node's process is running now.
	Running() bool
	// Restartable reports whether a new process can replace the old one; a client's cannot.
	Restartable() bool
}

// Delayed is a Starter that delays its starts on purpose. A server that forgot its leases must not come back before
// they have expired.
type Delayed interface {
	// StartDelay is how long a Start called now waits before it begins.
	StartDelay() time.Duration
}

// startDelay is how long a node's next start is put off.
func startDelay(n Node) time.Duration {
	if d, ok := As[Delayed](n); ok {
		return d.StartDelay()
	}
	return 0
}

// Scope is where a fault is injected, already resolved.
type Scope struct {
	On      []Node   // the targets
	Peers   []Node   // the far ends, for link faults
	Service Observer // nil where the backend has none
	// Servers names the run's servers, targets or not.
	Servers []string
	// Role is the fact by which the targets were found to lead; "" means FactRole.
	Role string
	// Seed seeds the random choices of the fault itself.
	Seed uint64
	// LinkFaults knows the other link faults of the run; nil where there can be none.
	LinkFaults *LinkFaults
	// Run is the run that the injection belongs to; nil outside a run.
	Run Run
}

// Run is the part of a run that faults use.
type Run interface {
	// Others returns the number of other active injections.
	Others() int
	// Stopped reports whether the target is paused so that the fault could be aimed at it.
	Stopped() bool
	// Continue resumes such a target. A fault calls it when its receipt needs an answer of the target itself.
	Continue() error
	// Counts takes the counter of the packets that the fault hits.
	Counts(c Counted)
	// Follow takes the Lead that keeps asking who leads after the injection. The run stops it at its end.
	Follow(l *Lead)
}

// Heal undoes one injection; the receipt is the evidence for it.
type Heal func(ctx context.Context) (history.Receipt, error)

// Timeout bounds one injection or one heal. The start delay of a node comes on top.
const Timeout = 20 * time.Second

// Limit returns the time limit of one injection on these nodes, or of its heal: Timeout plus the longest start delay
// among them.
func Limit(on []Node) time.Duration {
	var longest time.Duration
	for _, n := range on {
		longest = max(longest, startDelay(n))
	}
	return Timeout + longest
}

// Unavailable is the error of a capability that a machine or provider does not have.
type Unavailable struct {
	What   string // the capability or fault
	Reason string // why, and what would help
	Never  bool   // it makes no sense there, on any machine
}

// Error names the missing capability and the reason.
func (u Unavailable) Error() string { return u.What + " is unavailable: " + u.Reason }
