// Package chaos is what goes wrong in a run: the contract of a fault, the schedule that says when one is injected, the
// stack of heals that undoes them, and the list of all faults. One file per fault. It knows no cluster and no service:
// it declares the small interfaces of a node that its faults need.
package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/history"
)

// Node is a target: a server, a client, a resource. What can be done to it is asked for by type assertion to the
// capabilities below.
type Node interface {
	// Name is the node's name within the run, such as "etcd-2" or "client-1".
	Name() string
}

// Capability names something that a fault needs of a node.
type Capability string

// The capabilities. A provider says for each, before a run, whether it has it or why not.
const (
	CanInspect Capability = "inspect" // Inspector
	CanPause   Capability = "pause"   // Pauser
	CanKill    Capability = "kill"    // Killer
	CanStop    Capability = "stop"    // Stopper
	CanStart   Capability = "start"   // Starter
)

// ProcessState is what an observer outside the node sees of its process.
type ProcessState struct {
	PID     int            // in the observer's pid namespace; 0 when there is no process
	Threads map[string]int // number of threads by state letter of /proc/PID/task/*/stat: R, S, D, T, ...
	Time    int64          // ns of CLOCK_MONOTONIC after the last thread was read
	// Frozen is what the freezer says, where the process is frozen: its threads then do not show whether they were stopped.
	Frozen string
	// Waits tells that a SIGSTOP waits for the end of the frost.
	Waits bool
}

// Gone tells whether there was no process (or only an unreaped one).
func (s ProcessState) Gone() bool { return s.PID == 0 || len(s.Threads) == 1 && s.Threads["Z"] > 0 }

// Stopped tells whether every thread was stopped by a signal, or is frozen and will be when it is thawed.
func (s ProcessState) Stopped() bool {
	return s.PID != 0 && (len(s.Threads) == 1 && s.Threads["T"] > 0 || s.Frozen != "" && s.Waits)
}

// String describes the state for a receipt.
func (s ProcessState) String() string {
	if s.PID == 0 {
		return "no process"
	}
	text := fmt.Sprintf("pid %d, threads by state %v", s.PID, s.Threads)
	if s.Frozen != "" {
		text += ", " + s.Frozen
	}
	if s.Waits {
		text += ", where a SIGSTOP waits"
	}
	return text
}

// Inspector is a node whose process can be seen from outside.
type Inspector interface {
	// Inspect reads the state of the node's process now.
	Inspect(ctx context.Context) (ProcessState, error)
}

// Pauser is a node whose process can be stopped and continued by signals. A node that counts its pauses, so that several
// can overlap, tells their number by a method Pauses.
type Pauser interface {
	Inspector
	// Pause sends SIGSTOP and returns when every thread was seen stopped, or with an error. Each call that found a process is
	// undone by one of Resume, whatever it returned.
	Pause(ctx context.Context) (ProcessState, error)
	// Resume undoes one Pause. When none is left it sends SIGCONT and returns when no thread is stopped any more.
	Resume(ctx context.Context) (ProcessState, error)
}

// Killer is a node whose process can be killed with SIGKILL.
type Killer interface {
	Inspector
	// Kill sends SIGKILL and returns when the process is gone.
	Kill(ctx context.Context) (ProcessState, error)
}

// Stopper is a node whose process can be asked to end in order.
type Stopper interface {
	Killer
	// Stop sends the signal that asks for it, and returns when the process has ended and can be started again, or when ctx is over.
	Stop(ctx context.Context) (Ended, error)
}

// Ended is what came of a request to end.
type Ended struct {
	Signal string // that was sent: "TERM"
	Gone   bool   // the process has ended
	How    string // in the words of whoever waited for it: "exit status 0"; "" where nobody saw it
	Killed bool   // it was ended by a SIGKILL, whoever sent that
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
	if d, ok := n.(Delayed); ok {
		return d.StartDelay()
	}
	return 0
}

// Observer answers questions about the service from outside any fault.
type Observer interface {
	// Facts lists the names that Ask knows, each with one line of explanation. "serves" is always among them.
	Facts() map[string]string
	// Ask asks one node (by name) for one fact. Truths are "true" and "false".
	Ask(ctx context.Context, node, fact string) (string, error)
}

// FactServes is the fact that every Observer knows: the node answers a request of its own protocol.
const FactServes = "serves"

// FactAnswers is the fact that the node answers by itself, with or without the others that it needs in order to serve. Not every
// Observer knows it.
const FactAnswers = "answers"

// FactRole is the fact by which the targets leader and followers are found. A leader, primary or master answers one of
// these words; sentinel and none are neither; whatever else a node answers, it is a follower. A service with a leader for each part of
// its locks also knows "role:LOCK", which leader(LOCK) and followers(LOCK) ask.
const FactRole = "role"

// Scope is where a fault is injected, already resolved.
type Scope struct {
	On      []Node   // the targets
	Peers   []Node   // the far ends, for link faults
	Service Observer // nil where the backend has none
	// Counts takes what a fault that counts packets hands out; nil where nobody asks.
	Counts func(Counted)
	// Servers names the run's servers, targets or not.
	Servers []string
	// Role is the fact by which the targets were found to lead; "": FactRole.
	Role string
	// Follow takes what follows the lead, beyond the injection; nil where nobody asks.
	Follow func(*Lead)
	// Others tells how many other injections stand now; nil where there can be none.
	Others func() int
	// Lanes knows which link faults stand beside; nil where there can be none.
	Lanes *Lanes
	// Seed is of what a fault leaves to chance.
	Seed uint64
	// Continue lets a target go on that was stopped in order to aim; a fault whose receipt needs the target's own answer calls
	// it. nil where nothing was stopped.
	Continue func() error
}

// others tells how many other injections stand now.
func (s Scope) others() int {
	if s.Others == nil {
		return 0
	}
	return s.Others()
}

// Heal undoes one injection and tells how it knows.
type Heal func(ctx context.Context) (history.Receipt, error)

// Fault is a kind of trouble with its parameters.
type Fault interface {
	// Inject makes the trouble and returns when its receipt could be taken. The Heal is never nil, even beside an
	// error: a half-done injection must be undone. It may be called once.
	Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error)
}

// Kind is an entry of the list of faults.
type Kind struct {
	Name string // as scenarios write it
	Doc  string // one sentence: what it does and what its receipt is
	// Needs lists the capabilities that each target must have.
	Needs []Capability
	// Lasting tells whether the trouble stands until it is healed, so that `for` makes sense.
	Lasting bool
	// Syncs tells whether the fault shows only in a server that syncs to disk what it writes.
	Syncs bool
	// Servers tells whether only servers can be targets.
	Servers bool
	// Single tells whether an injection has one target alone, and never bites on several at once.
	Single bool
	// Kills tells whether the target's process ends by it.
	Kills bool
	// Counts tells whether the fault counts the packets that it meets, so that they can be waited for.
	Counts bool
	// PeerNeeds lists the capabilities that the other ends of a link fault must have.
	PeerNeeds []Capability
	// Stops tells whether the target does not run while the trouble stands, so that whoever stopped it in order to aim
	// must not continue it.
	Stops bool
	// Sample is the fault's own keys as a scenario writes them, such as "{by: 1s..60s}", for a random schedule that names the
	// fault alone; a fault that needs none leaves it empty.
	Sample string
	// Try lists the keys, as YAML ("by: +60s"), with which the fault is tried out by doctor and by the tests of all faults: one entry for
	// each way in which it works. Empty: once, without keys.
	Try []string
	// New makes the fault; decode fills a struct with the scenario's own parameters, strictly.
	New func(decode func(into any) error) (Fault, error)
}

// Timeout bounds one injection or one heal, beside the delay of nodes that put their start off.
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
