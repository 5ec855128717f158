// Package chaos is what goes wrong in a run: the contract of a fault, the targets, the schedule that says when one is
// injected, and the stack of heals that undoes them. It knows no fault, no cluster and no service. The faults are in
// the folders below: one for each mechanism, with one file per fault; all lists them.
package chaos

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
)

// Node is a target: a server, a client, a resource. What can be done to it, a fault asks As.
type Node interface {
	// Name is the node's name within the run, such as "etcd-2" or "client-1". Two values with one name are one node.
	Name() string
}

// As finds what a Node or an Observer can do beyond that: by itself, by one of the parts that its method Capabilities
// lists, or by the Observer that it wraps.
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

// Capability names something that a fault needs of a node.
type Capability string

// The capabilities that are needed whatever the fault; the others are declared beside the faults that need them. A
// provider says for each, before a run, whether it has it or why not.
const (
	CanInspect Capability = "inspect" // Inspector
	CanPause   Capability = "pause"   // process.Pauser; a holder is stopped in order to aim at it
	CanStart   Capability = "start"   // Starter
)

// ProcessState is what an observer outside the node sees of its process.
type ProcessState = node.State

// Inspector is a node whose process can be seen from outside.
type Inspector interface {
	// Inspect reads the state of the node's process now.
	Inspect(ctx context.Context) (ProcessState, error)
}

// Starter is a node that can be started again with its address and its data.
type Starter interface {
	// Start starts the node's process; it does not wait until it serves.
	Start(ctx context.Context) error
	// Running tells whether the node's process is running now.
	Running() bool
	// Restartable tells whether a new process can take the old one's place; a client's cannot.
	Restartable() bool
}

// Delayed is a Starter that puts its starts off on purpose, as a server does that must not come back before every lease
// that it forgot is over.
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
	// Role is the fact that told that the targets lead; "": FactRole.
	Role string
	// Seed is for the random choices of the fault itself.
	Seed uint64
	// LinkFaults knows the other link faults of the run; nil where there can be none.
	LinkFaults *LinkFaults
	// Run is the run that the injection is part of; nil where it is alone.
	Run Run
}

// Run is what a fault may ask of its run, and what it reports to it.
type Run interface {
	// Others returns how many other injections stand now.
	Others() int
	// Stopped tells whether the target stands still because it was stopped in order to aim.
	Stopped() bool
	// Continue lets such a target go on. A fault calls it when its receipt needs the target's own answer.
	Continue() error
	// Counts receives the counter of the packets that the fault meets.
	Counts(c Counted)
	// Follow receives what asks who leads, also after the injection. The run stops it in the end.
	Follow(l *Lead)
}

// Heal undoes one injection and tells how it knows.
type Heal func(ctx context.Context) (history.Receipt, error)

// Timeout bounds one injection or one heal. The start delay of a node comes on top.
const Timeout = 20 * time.Second

// Limit bounds one injection on these nodes, or its heal: Timeout and the longest delay with which one of them starts
// again.
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
	Never  bool   // it makes no sense there, on whatever machine
}

// Error says what cannot be delivered and why.
func (u Unavailable) Error() string { return u.What + " is unavailable: " + u.Reason }
