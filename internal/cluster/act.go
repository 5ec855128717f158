package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

// actTimeout bounds the wait for the effect of one signal, so that a process stuck in the kernel is told apart from a
// slow one.
const actTimeout = 10 * time.Second

// pollEvery is the pause between two looks at a process; the first look comes at once.
const pollEvery = 500 * time.Microsecond

// Inspect reads the state of the node's process from outside it.
func (n *Node) Inspect(ctx context.Context) (chaos.ProcessState, error) {
	if !n.Running() {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	s, err := n.driver.signaller(ctx)
	if err != nil {
		return chaos.ProcessState{}, err
	}
	state, err := s.inspect(ctx)
	if err != nil {
		return state, fmt.Errorf("inspect %s: %w", n.Name(), err)
	}
	if n.freezes.Load() == 0 || state.Gone() {
		return state, nil
	}
	f, err := n.Frozen(ctx)
	if f.Frozen {
		state.Frozen, state.Waits = f.Said, f.Stop
	}
	return state, err
}

// Pause sends SIGSTOP and returns when every thread was seen stopped. Pauses of one process are counted: each is undone by
// one Resume, also one that did not come to its end.
func (n *Node) Pause(ctx context.Context) (chaos.ProcessState, error) {
	n.pausing.Lock()
	defer n.pausing.Unlock()
	if n.Running() {
		n.pauses.Add(1)
	}
	return n.act(ctx, "STOP", "stopped", chaos.ProcessState.Stopped)
}

// Resume undoes one Pause. When none is left it sends SIGCONT and returns when no thread is stopped any more.
func (n *Node) Resume(ctx context.Context) (chaos.ProcessState, error) {
	n.pausing.Lock()
	defer n.pausing.Unlock()
	if n.pauses.Load() > 0 && n.pauses.Add(-1) > 0 {
		return n.Inspect(ctx)
	}
	return n.act(ctx, "CONT", "running again", func(s chaos.ProcessState) bool {
		return s.PID != 0 && s.Threads["T"] == 0 && !s.Waits
	})
}

// PID is the process that was started last, in the agent's pid namespace; 0 where none runs, or none is known without asking.
func (n *Node) PID() int {
	if !n.Running() {
		return 0
	}
	s, err := n.driver.signaller(context.Background())
	if a, ok := s.(throughAgent); ok && err == nil {
		return a.process.PID
	}
	return 0
}

// Pauses is how many pauses of the process have not been undone.
func (n *Node) Pauses() int { return int(n.pauses.Load()) }

// Kill sends SIGKILL and returns when the process is gone and can be started again. A process that is gone already is
// no error.
func (n *Node) Kill(ctx context.Context) (chaos.ProcessState, error) {
	exited := n.Exited()
	if exited == nil || !n.Running() {
		return chaos.ProcessState{Time: clock.Now()}, nil
	}
	state, err := n.act(ctx, "KILL", "gone", chaos.ProcessState.Gone)
	if err != nil && !errors.Is(err, agent.ErrNoProcess) {
		return state, err
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	select {
	case <-exited:
		return chaos.ProcessState{Time: clock.Now()}, nil
	case <-ctx.Done():
		return state, fmt.Errorf("%s is dead (%s), but was not reaped: %w", n.Name(), state, ctx.Err())
	}
}

// Stop asks the process to end in order, by SIGTERM or the signal that its service takes for it, and returns when it has ended and can be
// started again, or when ctx is over.
func (n *Node) Stop(ctx context.Context) (chaos.Ended, error) {
	n.mu.Lock()
	e := n.end
	n.mu.Unlock()
	out := chaos.Ended{Signal: cmp.Or(n.spec.StopSignal, "TERM")}
	if !n.Running() {
		return out, fmt.Errorf("signal %s to %s: %w", out.Signal, n.Name(), agent.ErrNoProcess)
	}
	s, err := n.driver.signaller(ctx)
	if err == nil {
		err = s.signal(ctx, out.Signal)
	}
	if err != nil {
		return out, fmt.Errorf("signal %s to %s: %w", out.Signal, n.Name(), err)
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
func (n *Node) act(ctx context.Context, signal, what string, done func(chaos.ProcessState) bool) (chaos.ProcessState, error) {
	if !n.Running() {
		return chaos.ProcessState{Time: clock.Now()}, fmt.Errorf("signal %s to %s: %w", signal, n.Name(), agent.ErrNoProcess)
	}
	s, err := n.driver.signaller(ctx)
	if err != nil {
		return chaos.ProcessState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, actTimeout)
	defer cancel()
	first, err := sent(ctx, s, signal)
	switch {
	case err != nil:
		return chaos.ProcessState{}, fmt.Errorf("signal %s to %s: %w", signal, n.Name(), err)
	case signal == "KILL":
		n.thawAll(ctx)
	case first != nil && done(*first):
		return *first, nil
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		state, err := n.Inspect(ctx)
		if err != nil {
			return state, err
		}
		if done(state) {
			return state, nil
		}
		if state.Gone() {
			return state, fmt.Errorf("%s ended before it was %s: %w", n.Name(), what, agent.ErrNoProcess)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return state, fmt.Errorf("%s was not seen %s (%s): %w", n.Name(), what, state, ctx.Err())
		}
	}
}

// watching is a signaller that looks at the process right after a signal.
type watching interface {
	signalSeen(ctx context.Context, name string) (*chaos.ProcessState, error)
}

// sent sends a signal, and returns what was seen right after it, if anything.
func sent(ctx context.Context, s signaller, signal string) (*chaos.ProcessState, error) {
	if w, ok := s.(watching); ok {
		return w.signalSeen(ctx, signal)
	}
	return nil, s.signal(ctx, signal)
}

// order has the run's agent do something to the node's process, and says why where there is no agent.
func (n *Node) order(ctx context.Context, o agent.Order, result any) error {
	a, err := n.reach(ctx)
	if err != nil {
		return err
	}
	o.Process = a.process
	if err := a.agent.Order(ctx, o, result); err != nil {
		return fmt.Errorf("%s of %s: %w", o.Do, n.Name(), err)
	}
	return nil
}

// undo has the agent take back what an order left standing under the key.
func (n *Node) undo(ctx context.Context, key string, result any) error {
	a, err := n.reach(ctx)
	if err != nil {
		return err
	}
	if err := a.agent.Undo(ctx, key, result); err != nil {
		return fmt.Errorf("undo of %s: %w", n.Name(), err)
	}
	return nil
}

// reach returns the agent's hand on the node's process.
func (n *Node) reach(ctx context.Context) (throughAgent, error) {
	s, err := n.driver.signaller(ctx)
	if err != nil {
		return throughAgent{}, err
	}
	a, ok := s.(throughAgent)
	if !ok {
		return throughAgent{}, chaos.Unavailable{What: "the agent", Reason: n.Name() + " is not reached by one; the run's log says why"}
	}
	return a, nil
}

// observed turns an agent's State into the receipt's form.
func observed(s agent.State) chaos.ProcessState {
	return chaos.ProcessState{PID: s.PID, Threads: s.Threads, Time: s.Time}
}

// throughAgent signals by way of the run's agent, and in another way once the agent is gone.
type throughAgent struct {
	agent   *agent.Client
	process agent.Process
	without signaller
}

func (t throughAgent) inspect(ctx context.Context) (chaos.ProcessState, error) {
	s, err := t.agent.Inspect(ctx, t.process)
	if errors.Is(err, agent.ErrEnded) {
		return t.without.inspect(ctx)
	}
	return observed(s), err
}

func (t throughAgent) signal(ctx context.Context, name string) error {
	err := t.agent.Signal(ctx, t.process, name)
	if errors.Is(err, agent.ErrEnded) {
		return t.without.signal(ctx, name)
	}
	return err
}

func (t throughAgent) signalSeen(ctx context.Context, name string) (*chaos.ProcessState, error) {
	s, err := t.agent.SignalSeen(ctx, t.process, name)
	if errors.Is(err, agent.ErrEnded) {
		return nil, t.without.signal(ctx, name)
	}
	if err != nil || s == nil {
		return nil, err
	}
	state := observed(*s)
	return &state, nil
}

// direct signals a process of this machine and pid namespace from the supervisor itself.
type direct struct{ process agent.Process }

func (d direct) inspect(context.Context) (chaos.ProcessState, error) {
	s, err := d.process.Inspect()
	return observed(s), err
}

func (d direct) signal(_ context.Context, name string) error { return d.process.Signal(name) }
