package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// Process starts the process of a node, and knows how the last one ended.
type Process struct {
	*core
	// renew calls replace, and does what the other parts need for a new process.
	renew func(ctx context.Context, replace func()) error

	starts atomic.Int32

	starting sync.Mutex // held while a process is being started
	mu       sync.Mutex // guards what follows
	stdio    Stdio
	end      *ending  // of the last started process; nil before the first
	left     []string // what earlier processes left behind
}

// Start starts the node's process. It does not wait until it serves. Every start except the first waits for
// RestartDelay before it begins.
func (p *Process) Start(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.Running() {
		return fmt.Errorf("%s is already running", p.Name())
	}
	if p.Exited() != nil && !p.spec.Restartable {
		return fmt.Errorf("%s cannot be started a second time", p.Name())
	}
	if d := p.StartDelay(); d > 0 {
		waited := clock.Waits(ctx, d)
		err := clock.Sleep(ctx, d)
		waited()
		if err != nil {
			return fmt.Errorf("start %s: cancelled within its restart delay of %v: %w", p.Name(), d, ctx.Err())
		}
	}
	_, done := clock.Act(ctx)
	done() // the seconds that an engine takes to start a container do not count as a late injection
	stdio, end, err := p.driver.start(ctx)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name(), err)
	}
	p.starts.Add(1)
	return p.renew(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.end != nil {
			p.left = p.end.leftBehind(p.left)
		}
		p.stdio, p.end = stdio, end
	})
}

// StartDelay is how long a Start called now waits before it begins.
func (p *Process) StartDelay() time.Duration {
	if p.Exited() == nil {
		return 0
	}
	return p.spec.RestartDelay
}

// Restartable reports whether Start may be called after the process ended.
func (p *Process) Restartable() bool { return p.spec.Restartable }

// Starts returns how many processes the node has had.
func (p *Process) Starts() int { return int(p.starts.Load()) }

// Running reports whether the node's process has been started and has not been seen to end.
func (p *Process) Running() bool {
	exited := p.Exited()
	if exited == nil {
		return false
	}
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// lasts returns a function that reports whether the current process still runs. The network of a container ends with
// its process, so packets lost after that were not lost by a fault.
func (p *Process) lasts() func() bool {
	exited := p.Exited()
	return func() bool { return p.Exited() == exited && p.Running() }
}

// last returns the end of the last started process; nil before the first.
func (p *Process) last() *ending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

// Exited returns a channel that is closed when the last started process has ended; nil before the first Start.
func (p *Process) Exited() <-chan struct{} {
	if e := p.last(); e != nil {
		return e.seen
	}
	return nil
}

// Ended returns how the last started process ended, such as "exit status 0". It returns "" while the process runs, and
// if the end was not seen, as on a host that cannot be reached any more.
func (p *Process) Ended() string {
	e := p.last()
	if e == nil {
		return ""
	}
	select {
	case <-e.seen:
		return e.how
	default:
		return ""
	}
}

// LeftBehind returns what the node's processes left behind when they ended, and what was done about it; empty if
// nothing.
func (p *Process) LeftBehind() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.left
	if p.end != nil {
		left = p.end.leftBehind(left)
	}
	return slices.Clone(left)
}

// Stdio returns the control stream of the running process.
func (p *Process) Stdio() Stdio {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stdio
}

// CPU returns the user and system time of all processes of the node since its start. Only differences mean something:
// processes that ended meanwhile may be missing.
func (p *Process) CPU(ctx context.Context) (time.Duration, error) {
	m, ok := p.driver.(meter)
	if !ok {
		return 0, chaos.Unavailable{
			What:   "the processor time of " + p.Name(),
			Reason: "it shares its process with others",
		}
	}
	return m.used(ctx)
}

// Footprint returns the resource usage of all processes of the node.
func (p *Process) Footprint(ctx context.Context) (proc.Footprint, error) {
	m, ok := p.driver.(measurable)
	if !ok {
		return proc.Footprint{}, chaos.Unavailable{
			What:   "the footprint of " + p.Name(),
			Reason: "it shares its process with others, or is of another machine",
		}
	}
	return m.footprint(ctx)
}
