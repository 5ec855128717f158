package process

import (
	"context"

	"github.com/lockquake/lockquake/chaos"
)

// The capabilities of processes that faults need, beside those that aiming and reviving need.
const (
	CanKill chaos.Capability = "kill" // Killer
	CanStop chaos.Capability = "stop" // Stopper
)

// Pauser is a node whose process can be stopped and continued by signals. A node that counts its pauses, so that
// several can overlap, tells their number by a method Pauses.
type Pauser interface {
	chaos.Inspector
	// Pause sends SIGSTOP and returns when every thread was seen stopped, or with an error. Each call that found a
	// process is undone by one of Resume, whatever it returned.
	Pause(ctx context.Context) (chaos.ProcessState, error)
	// Resume undoes one Pause. When none is left it sends SIGCONT and returns when no thread is stopped any more.
	Resume(ctx context.Context) (chaos.ProcessState, error)
}

// Killer is a node whose process can be killed with SIGKILL.
type Killer interface {
	chaos.Inspector
	// Kill sends SIGKILL and returns when the process is gone and can be started again, with when it was first seen
	// gone.
	Kill(ctx context.Context) (chaos.ProcessState, error)
}

// Stopper is a node whose process can be asked to end in order.
type Stopper interface {
	Killer
	// Stop sends the signal that asks for it, and returns when the process has ended and can be started again, or when
	// ctx is over.
	Stop(ctx context.Context) (Ended, error)
}

// Ended is what came of a request to end.
type Ended struct {
	Signal string // that was sent: "TERM"
	Sent   int64  // ns of CLOCK_MONOTONIC: just before it was
	Gone   bool   // the process has ended
	How    string // it ended, such as "exit status 0"; "" where that was not seen
	Killed bool   // it was ended by a SIGKILL, ours or another
}
