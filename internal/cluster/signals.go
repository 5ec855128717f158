package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// actTimeout bounds the wait for the effect of one signal, to distinguish a process stuck in the kernel from a slow
// one.
const actTimeout = 10 * time.Second

// pollEvery is the pause between two looks at a process; the first look comes at once.
const pollEvery = 500 * time.Microsecond

// Signals stops, freezes, ends and inspects the process of a node.
type Signals struct {
	*core
	process *Process
	orders  *Orders

	pausing  sync.Mutex // held while the process is being stopped or continued, frozen or thawed
	pauses   atomic.Int32
	freezes  atomic.Int32
	freezing freezeOrder
}

// Inspect reads the state of the node's process from outside it.
func (g *Signals) Inspect(ctx context.Context) (chaos.ProcessState, error) {
	if !g.process.Running() {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	s, err := g.driver.signaller(ctx)
	if err != nil {
		return chaos.ProcessState{}, err
	}
	state, err := s.inspect(ctx)
	if err != nil {
		return state, fmt.Errorf("inspect %s: %w", g.Name(), err)
	}
	if g.freezes.Load() == 0 || state.Gone() {
		return state, nil
	}
	f, err := g.Frozen(ctx)
	if f.Frozen {
		state.Frozen, state.Waits = f.Said, f.Stop
	}
	return state, err
}

// Overseen reports whether the node's process can be inspected often: by an agent or by this process, not by a
// container engine.
func (g *Signals) Overseen(ctx context.Context) bool {
	s, err := g.driver.signaller(ctx)
	_, asks := s.(throughEngine)
	return err == nil && !asks
}

// Pause sends SIGSTOP and returns when every thread was seen stopped. Pauses of one process are counted: each is undone
// by one Resume, even after an error.
func (g *Signals) Pause(ctx context.Context) (chaos.ProcessState, error) {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.process.Running() {
		g.pauses.Add(1)
	}
	return g.act(ctx, "STOP", "stopped", chaos.ProcessState.Stopped)
}

// Resume undoes one Pause. When none is left it sends SIGCONT and returns when no thread is stopped any more.
func (g *Signals) Resume(ctx context.Context) (chaos.ProcessState, error) {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.pauses.Load() > 0 && g.pauses.Add(-1) > 0 {
		return g.Inspect(ctx)
	}
	return g.act(ctx, "CONT", "running again", func(s chaos.ProcessState) bool {
		return s.PID != 0 && s.Threads["T"] == 0 && !s.Waits
	})
}

// PID returns the pid of the last started process, in the agent's pid namespace. It is 0 if none runs, or if it is
// unknown without asking.
func (g *Signals) PID() int {
	if !g.process.Running() {
		return 0
	}
	s, err := g.driver.signaller(context.Background())
	if a, ok := s.(throughAgent); ok && err == nil {
		return a.process.PID
	}
	return 0
}

// forget is called when another process replaces the last one.
func (g *Signals) forget() {
	g.pauses.Store(0)
	g.freezes.Store(0)
}

// Pauses returns how many pauses of the process have not been undone.
func (g *Signals) Pauses() int { return int(g.pauses.Load()) }

// Kill sends SIGKILL and returns when the process is gone and can be started again. The state has the time at which it
// was first seen gone: an engine may report that a second later. A process that is already gone is no error.
func (g *Signals) Kill(ctx context.Context) (chaos.ProcessState, error) {
	exited := g.process.Exited()
	if exited == nil || !g.process.Running() {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	sent := clock.Now()
	state, err := g.act(ctx, "KILL", "gone", chaos.ProcessState.Gone)
	if err != nil && !errors.Is(err, proc.ErrNoProcess) {
		return state, err
	}
	gone := chaos.ProcessState{Time: cmp.Or(state.Time, clock.Now()), TimeError: state.TimeError, Sent: sent}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	select {
	case <-exited:
		return gone, nil
	case <-ctx.Done():
		return state, fmt.Errorf("%s is dead (%s), but was not reaped: %w", g.Name(), state, ctx.Err())
	}
}

// Stop asks the process to shut down, by SIGTERM or its service's own signal. It returns when the process has ended and
// can be started again, or when ctx ends.
func (g *Signals) Stop(ctx context.Context) (process.Ended, error) {
	e := g.process.last()
	out := process.Ended{Signal: cmp.Or(g.spec.StopSignal, "TERM")}
	if !g.process.Running() {
		return out, fmt.Errorf("signal %s to %s: %w", out.Signal, g.Name(), proc.ErrNoProcess)
	}
	s, err := g.driver.signaller(ctx)
	if err == nil {
		out.Sent = clock.Now()
		_, err = sent(ctx, s, out.Signal)
	}
	if err != nil {
		return out, fmt.Errorf("signal %s to %s: %w", out.Signal, g.Name(), err)
	}
	select {
	case <-e.seen:
		out.Gone, out.How, out.Killed = true, e.how, e.killed
	case <-ctx.Done():
	}
	return out, nil
}

// act sends a signal and polls until its effect is seen. It returns an error if the process ended meanwhile, unless
// that was the effect.
func (g *Signals) act(ctx context.Context, signal, what string, done func(chaos.ProcessState) bool) (chaos.ProcessState,
	error,
) {
	if !g.process.Running() {
		return chaos.ProcessState{Time: clock.Now()}, fmt.Errorf("signal %s to %s: %w", signal, g.Name(),
			proc.ErrNoProcess)
	}
	s, err := g.driver.signaller(ctx)
	if err != nil {
		return chaos.ProcessState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	first, err := sent(ctx, s, signal)
	switch {
	case err != nil:
		return chaos.ProcessState{}, fmt.Errorf("signal %s to %s: %w", signal, g.Name(), err)
	case signal == "KILL":
		g.thawAll(ctx)
	case first != nil && done(*first):
		return *first, nil
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		state, err := g.Inspect(ctx)
		if err != nil {
			return state, err
		}
		if done(state) {
			return state, nil
		}
		if state.Gone() {
			return state, fmt.Errorf("%s ended before it was %s: %w", g.Name(), what, proc.ErrNoProcess)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return state, fmt.Errorf("%s was not seen %s (%s): %w", g.Name(), what, state, ctx.Err())
		}
	}
}

// Freeze halts the node's process and its descendants by the kernel's freezer. Freezes of one process are counted: each
// is undone by one Thaw, even after an error.
func (g *Signals) Freeze(ctx context.Context) error {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if !g.process.Running() {
		return fmt.Errorf("freeze %s: %w", g.Name(), proc.ErrNoProcess)
	}
	f, ok := g.driver.(freezable)
	if !ok {
		return chaos.Unavailable{What: string(process.CanFreeze), Reason: g.Name() + " cannot be frozen by lockquake"}
	}
	if g.freezes.Add(1) > 1 {
		return nil
	}
	return f.freeze(ctx)
}

// Thaw undoes one Freeze. When none is left the process continues.
func (g *Signals) Thaw(ctx context.Context) error {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.freezes.Load() == 0 || g.freezes.Add(-1) > 0 {
		return nil
	}
	return g.driver.(freezable).thaw(ctx)
}

// Freezes returns how many freezes of the process have not been undone.
func (g *Signals) Freezes() int { return int(g.freezes.Load()) }

// Frozen asks the kernel whether the process is frozen, by way of the agent.
func (g *Signals) Frozen(ctx context.Context) (process.Frozen, error) {
	if !g.process.Running() {
		return process.Frozen{Gone: true, Unseen: noProcessLeft, Time: clock.Now()}, nil
	}
	var out process.Frozen
	err := g.orders.order(ctx, agent.Order{Do: process.DoFrozen}, &out)
	out.Time = g.orders.runTime(ctx, out.Time)
	f, ok := g.driver.(freezable)
	switch {
	case ok && (out.Unseen != "" || errors.As(err, new(chaos.Unavailable))):
		return f.frozen(ctx)
	case errors.Is(err, proc.ErrNoProcess):
		return process.Frozen{Gone: true, Unseen: noProcessLeft, Time: clock.Now()}, nil
	}
	return out, err
}

// noProcessLeft is the reason if a node's freezer was not asked.
const noProcessLeft = "there is no process"

// thawAll undoes all freezes of a process, so that it can die: a pending SIGKILL takes effect before it runs.
func (g *Signals) thawAll(ctx context.Context) {
	if g.freezes.Load() == 0 {
		return
	}
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.freezes.Swap(0) > 0 {
		_ = g.driver.(freezable).thaw(ctx) // the caller checks that it dies
	}
}

// letGo undoes all freezes and pauses of a process.
func (g *Signals) letGo(ctx context.Context) error {
	g.thawAll(ctx)
	s, err := g.Inspect(ctx)
	if err != nil || s.Threads["T"] == 0 {
		return nil //nolint:nilerr // whether it is stopped cannot be known
	}
	g.pauses.Store(0)
	_, err = g.Resume(ctx)
	return err
}

// freezeOrder is the order to freeze a node, once sent to the agent.
type freezeOrder struct {
	orders *Orders
	given  bool // the agent must thaw
}

// freezeKey is the key prefix of orders to freeze.
const freezeKey = "freeze"

// give sends the order to the agent, which then undoes it if the supervisor dies.
func (f *freezeOrder) give(ctx context.Context, args process.FreezeArgs) error {
	if _, err := f.orders.reach(ctx); err != nil {
		return err
	}
	f.given = true // set before its first effect
	return f.orders.order(ctx, agent.Order{Do: process.DoFreeze, Key: f.orders.key(freezeKey), Args: args}, nil)
}

// undo makes the agent undo it.
func (f *freezeOrder) undo(ctx context.Context) error {
	if !f.given {
		return nil
	}
	f.given = false
	return f.orders.undo(ctx, f.orders.key(freezeKey), nil)
}
