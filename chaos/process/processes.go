package process

import (
	"context"

	"github.com/lockquake/lockquake/chaos"
)

// The capabilities of process faults, besides those for aiming and reviving.
const (
	CanKill chaos.Capability = "kill" // Killer
	CanStop chaos.Capability = "stop" // Stopper
)

// Pauser is a node whose process can be stopped and continued by signals. A node whose pauses can overlap counts them
// and returns the number from a method Pauses.
type Pauser interface {
	chaos.Inspector
	// Pause sends SIGSTOP and returns when every thread was seen stopped, or with an error. Each call that found a
	// process needs one call of Resume, even after an error.
	Pause(ctx context.Context) (chaos.ProcessState, error)
	// Resume undoes one Pause. When none is left it sends SIGCONT and returns when no thread is stopped any more.
	Resume(ctx context.Context) (chaos.ProcessState, error)
}

// Killer is a node whose process can be killed with SIGKILL.
type Killer interface {
	chaos.Inspector
	// Kill sends SIGKILL and returns when the process is gone and can be started again. The state has the time at which
	// it was first seen gone.
	Kill(ctx context.Context) (chaos.ProcessState, error)
}

// Stopper is a node whose process can be asked to shut down.
type Stopper interface {
	Killer
	// Stop sends the signal for it, and returns when the process has ended and can be started again, or when ctx ends.
	Stop(ctx context.Context) (Ended, error)
}

// Ended is the result of a stop request.
type Ended struct {
	Signal string // signal that was sent: "TERM"
	Sent   int64  // ns of CLOCK_MONOTONIC: just before that
	Gone   bool   // the process has ended
	How    string // it ended, such as "exit status 0"; "" where that was not seen
	Killed bool   // it was ended by a SIGKILL, ours or another
}
