package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// actTimeout bounds the wait for the effect of one signal, so that a process stuck in the kernel is told apart from a
// slow one.
const actTimeout = 10 * time.Second

// pollEvery is the pause between two looks at a process; the first look comes at once.
const pollEvery = 500 * time.Microsecond

// signals stops, freezes, ends and inspects the process of a node.
type signals struct {
	node *Node

	pausing  sync.Mutex // held while the process is being stopped or continued, frozen or thawed
	pauses   atomic.Int32
	freezes  atomic.Int32
	owesThaw bool // the agent owes a thaw
}

// Inspect reads the state of the node's process from outside it.
func (g *signals) Inspect(ctx context.Context) (chaos.ProcessState, error) {
	if !g.node.Running() {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	s, err := g.node.driver.signaller(ctx)
	if err != nil {
		return chaos.ProcessState{}, err
	}
	state, err := s.inspect(ctx)
	if err != nil {
		return state, fmt.Errorf("inspect %s: %w", g.node.Name(), err)
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

// Overseen reports whether the node's process can be looked at often: by an agent or by this process, and not by a
// container engine.
func (g *signals) Overseen(ctx context.Context) bool {
	s, err := g.node.driver.signaller(ctx)
	_, asks := s.(throughEngine)
	return err == nil && !asks
}

// Pause sends SIGSTOP and returns when every thread was seen stopped. Pauses of one process are counted: each is undone
// by one Resume, also one that did not come to its end.
func (g *signals) Pause(ctx context.Context) (chaos.ProcessState, error) {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.node.Running() {
		g.pauses.Add(1)
	}
	return g.act(ctx, "STOP", "stopped", chaos.ProcessState.Stopped)
}

// Resume undoes one Pause. When none is left it sends SIGCONT and returns when no thread is stopped any more.
func (g *signals) Resume(ctx context.Context) (chaos.ProcessState, error) {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.pauses.Load() > 0 && g.pauses.Add(-1) > 0 {
		return g.Inspect(ctx)
	}
	return g.act(ctx, "CONT", "running again", func(s chaos.ProcessState) bool {
		return s.PID != 0 && s.Threads["T"] == 0 && !s.Waits
	})
}

// PID is the process that was started last, in the agent's pid namespace; 0 where none runs, or none is known without
// asking.
func (g *signals) PID() int {
	if !g.node.Running() {
		return 0
	}
	s, err := g.node.driver.signaller(context.Background())
	if a, ok := s.(throughAgent); ok && err == nil {
		return a.process.PID
	}
	return 0
}

// Pauses is how many pauses of the process have not been undone.
func (g *signals) Pauses() int { return int(g.pauses.Load()) }

// Kill sends SIGKILL and returns when the process is gone and can be started again, with when it was first seen gone:
// an engine may take a second more to tell. A process that is gone already is no error.
func (g *signals) Kill(ctx context.Context) (chaos.ProcessState, error) {
	exited := g.node.Exited()
	if exited == nil || !g.node.Running() {
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
		return state, fmt.Errorf("%s is dead (%s), but was not reaped: %w", g.node.Name(), state, ctx.Err())
	}
}

// Stop asks the process to end in order, by SIGTERM or the signal that its service takes for it, and returns when it
// has ended and can be started again, or when ctx is over.
func (g *signals) Stop(ctx context.Context) (process.Ended, error) {
	g.node.mu.Lock()
	e := g.node.end
	g.node.mu.Unlock()
	out := process.Ended{Signal: cmp.Or(g.node.spec.StopSignal, "TERM")}
	if !g.node.Running() {
		return out, fmt.Errorf("signal %s to %s: %w", out.Signal, g.node.Name(), proc.ErrNoProcess)
	}
	s, err := g.node.driver.signaller(ctx)
	if err == nil {
		out.Sent = clock.Now()
		_, err = sent(ctx, s, out.Signal)
	}
	if err != nil {
		return out, fmt.Errorf("signal %s to %s: %w", out.Signal, g.node.Name(), err)
	}
	select {
	case <-e.seen:
		out.Gone, out.How, out.Killed = true, e.how, e.killed
	case <-ctx.Done():
	}
	return out, nil
}

// act sends a signal and looks until its effect is seen. A process that ended on the way is an error, unless its end
// was the effect.
func (g *signals) act(ctx context.Context, signal, what string, done func(chaos.ProcessState) bool) (chaos.ProcessState,
	error,
) {
	if !g.node.Running() {
		return chaos.ProcessState{Time: clock.Now()}, fmt.Errorf("signal %s to %s: %w", signal, g.node.Name(),
			proc.ErrNoProcess)
	}
	s, err := g.node.driver.signaller(ctx)
	if err != nil {
		return chaos.ProcessState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	first, err := sent(ctx, s, signal)
	switch {
	case err != nil:
		return chaos.ProcessState{}, fmt.Errorf("signal %s to %s: %w", signal, g.node.Name(), err)
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
			return state, fmt.Errorf("%s ended before it was %s: %w", g.node.Name(), what, proc.ErrNoProcess)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return state, fmt.Errorf("%s was not seen %s (%s): %w", g.node.Name(), what, state, ctx.Err())
		}
	}
}

// watching is a signaller that looks at the process right after a signal.
type watching interface {
	signalSeen(ctx context.Context, name string) (*chaos.ProcessState, error)
}

// sent sends a signal, and returns what was seen right after it, if anything.
func sent(ctx context.Context, s signaller, signal string) (*chaos.ProcessState, error) {
	ctx, done := clock.Act(ctx)
	defer done()
	if w, ok := s.(watching); ok {
		return w.signalSeen(ctx, signal)
	}
	return nil, s.signal(ctx, signal)
}

// throughAgent signals through the run's agent, and through `without` once the agent is gone.
type throughAgent struct {
	agent   *agent.Client
	process proc.Process
	without signaller
}

func (t throughAgent) inspect(ctx context.Context) (chaos.ProcessState, error) {
	s, err := t.agent.Inspect(ctx, t.process)
	if errors.Is(err, agent.ErrEnded) {
		return t.without.inspect(ctx)
	}
	return s, err
}

func (t throughAgent) signal(ctx context.Context, name string) error {
	_, err := t.signalSeen(ctx, name)
	return err
}

func (t throughAgent) signalSeen(ctx context.Context, name string) (*chaos.ProcessState, error) {
	s, err := t.agent.SignalSeen(ctx, t.process, name)
	if errors.Is(err, agent.ErrEnded) {
		return nil, t.without.signal(ctx, name)
	}
	return s, err
}

// direct signals a process of this machine and pid namespace from the supervisor itself.
type direct struct {
	process proc.Process
	why     error // there is no agent
}

func (d direct) agentless() error { return d.why }

func (d direct) inspect(context.Context) (chaos.ProcessState, error) {
	return d.process.Inspect()
}

func (d direct) signal(_ context.Context, name string) error { return d.process.Signal(name) }

var _ process.Freezer = (*Node)(nil)

// freezable is a driver whose node can be frozen, with its descendants.
type freezable interface {
	freeze(ctx context.Context) error
	thaw(ctx context.Context) error
	// frozen is what is known where no agent can ask the kernel.
	frozen(ctx context.Context) (process.Frozen, error)
}

// Freeze halts the node's process and its descendants by the kernel's freezer. Freezes of one process are counted: each
// is undone by one Thaw, also one that did not come to its end.
func (g *signals) Freeze(ctx context.Context) error {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if !g.node.Running() {
		return fmt.Errorf("freeze %s: %w", g.node.Name(), proc.ErrNoProcess)
	}
	f, ok := g.node.driver.(freezable)
	if !ok {
		return chaos.Unavailable{What: string(process.CanFreeze), Reason: g.node.Name() + " is not ours to freeze"}
	}
	if g.freezes.Add(1) > 1 {
		return nil
	}
	return f.freeze(ctx)
}

// Thaw undoes one Freeze. When none is left the process goes on.
func (g *signals) Thaw(ctx context.Context) error {
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.freezes.Load() == 0 || g.freezes.Add(-1) > 0 {
		return nil
	}
	return g.node.driver.(freezable).thaw(ctx)
}

// Freezes is how many freezes of the process have not been undone.
func (g *signals) Freezes() int { return int(g.freezes.Load()) }

// Frozen asks the kernel whether the process is frozen, by way of the agent.
func (g *signals) Frozen(ctx context.Context) (process.Frozen, error) {
	if !g.node.Running() {
		return process.Frozen{Gone: true, Unseen: noProcessLeft, Time: clock.Now()}, nil
	}
	var out process.Frozen
	err := g.node.order(ctx, agent.Order{Do: process.DoFrozen}, &out)
	out.Time = g.node.runTime(ctx, out.Time)
	f, ok := g.node.driver.(freezable)
	switch {
	case ok && (out.Unseen != "" || errors.As(err, new(chaos.Unavailable))):
		return f.frozen(ctx)
	case errors.Is(err, proc.ErrNoProcess):
		return process.Frozen{Gone: true, Unseen: noProcessLeft, Time: clock.Now()}, nil
	}
	return out, err
}

// noProcessLeft is why the freezer of a node was not asked.
const noProcessLeft = "there is no process"

// thawAll thaws a process however often it was frozen, so that it can die: one that was sent SIGKILL takes that before
// anything else.
func (g *signals) thawAll(ctx context.Context) {
	if g.freezes.Load() == 0 {
		return
	}
	g.pausing.Lock()
	defer g.pausing.Unlock()
	if g.freezes.Swap(0) > 0 {
		_ = g.node.driver.(freezable).thaw(ctx) // the caller checks that it dies
	}
}

// freezeKey begins the keys of orders to freeze.
const freezeKey = "freeze"

// orderFreeze gives the agent the order to freeze. The agent then undoes it, should the supervisor die.
func (g *signals) orderFreeze(ctx context.Context, args process.FreezeArgs) error {
	if _, err := g.node.reach(ctx); err != nil {
		return err
	}
	g.owesThaw = true // from before its first effect
	return g.node.order(ctx, agent.Order{Do: process.DoFreeze, Key: g.node.orderKey(freezeKey), Args: args}, nil)
}

// undoFreeze has the agent undo that order.
func (g *signals) undoFreeze(ctx context.Context) error {
	if !g.owesThaw {
		return nil
	}
	g.owesThaw = false
	return g.node.undo(ctx, g.node.orderKey(freezeKey), nil)
}

// freeze has the agent make a control group for the process, and freeze it.
func (p *localNode) freeze(ctx context.Context) error {
	ctx, done := clock.Act(ctx)
	defer done()
	return p.node.orderFreeze(ctx, process.FreezeArgs{})
}

func (p *localNode) thaw(ctx context.Context) error {
	ctx, done := clock.Act(ctx)
	defer done()
	return p.node.undoFreeze(ctx)
}

func (p *localNode) frozen(context.Context) (process.Frozen, error) {
	return process.Frozen{Said: "there is no agent to ask", Unseen: "there is no agent to ask", Time: clock.Now()}, nil
}

// freeze has the engine pause the container. The agent is told first, so that it thaws the container when the
// supervisor is gone; where it cannot, `clean` removes the container.
func (c *containerNode) freeze(ctx context.Context) error {
	if err := c.node.orderFreeze(ctx, process.FreezeArgs{Engine: true}); err != nil {
		c.run.log.Warn("the agent could not thaw the container by itself", "node", c.spec.Name, "err", err)
	}
	_, done := clock.Act(ctx)
	defer done()
	if _, err := c.run.api.ContainerPause(ctx, c.box.GetContainerID(), client.ContainerPauseOptions{}); err != nil {
		return fmt.Errorf("have the engine pause %s: %w", c.spec.Name, err)
	}
	return nil
}

func (c *containerNode) thaw(ctx context.Context) error {
	_, done := clock.Act(ctx)
	_, err := c.run.api.ContainerUnpause(ctx, c.box.GetContainerID(), client.ContainerUnpauseOptions{})
	done()
	if err != nil {
		if paused, said := c.paused(ctx); said == nil && !paused {
			err = nil // it has ended, or was never paused
		} else {
			err = fmt.Errorf("have the engine let %s go on: %w", c.spec.Name, err)
		}
	}
	return errors.Join(err, c.node.undoFreeze(ctx))
}

// paused asks the engine.
func (c *containerNode) paused(ctx context.Context) (bool, error) {
	info, err := c.run.api.ContainerInspect(ctx, c.box.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		return false, fmt.Errorf("inspect the container of %s: %w", c.spec.Name, err)
	}
	return info.Container.State.Paused, nil
}

func (c *containerNode) frozen(ctx context.Context) (process.Frozen, error) {
	paused, err := c.paused(ctx)
	return process.Frozen{
		Frozen: paused, Unseen: "only the engine knows",
		Said: fmt.Sprintf("paused: %t, says the engine itself", paused), Time: clock.Now(),
	}, err
}
