package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// pause stops a process with SIGSTOP, as a long garbage collection, a live migration or a suspended laptop would. Its
// connections stay open, and the kernel still acknowledges what arrives. Only the missing answers show that it is
// stopped.
type pause struct{}

func pauseKind() chaos.Kind {
	return chaos.Kind{
		Name: "pause", Place: 2,
		Doc: "Stops the target with SIGSTOP; the heal sends SIGCONT. Receipt: all its threads are in state T, as " +
			"seen from outside.",
		Needs:   []chaos.Capability{chaos.CanInspect, chaos.CanPause},
		Lasting: true,
		Stops:   true,
		Began:   "paused (SIGSTOP)", Ended: "runs again",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := pause{}
			return f, decode(&f)
		},
	}
}

type pausable interface {
	chaos.Node
	Pauser
}

// Inject stops all targets concurrently and checks each of them once more.
func (pause) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	return chaos.AtOnce(s, chaos.CanPause, func(n pausable, held *chaos.Hits[stopped]) (history.Receipt, error) {
		return stop(ctx, n, held)
	}, func(ctx context.Context, n stopped) (history.Receipt, error) { return n.resumed(ctx) })
}

// stopped is one target. The heal resumes the process that was stopped, not one that replaced it.
type stopped struct {
	pausable
	pid int
}

func stop(ctx context.Context, n pausable, held *chaos.Hits[stopped]) (history.Receipt, error) {
	before, none, err := chaos.Before(ctx, n, "to stop")
	if err != nil || before.Gone() {
		return none, err
	}
	held.Note(stopped{n, before.PID})
	sent, err := n.Pause(ctx)
	if err != nil {
		return history.Receipt{}, err
	}
	state, err := n.Inspect(ctx)
	evidence := fmt.Sprintf("%s: %s", n.Name(), state)
	switch {
	case err != nil:
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	case !state.Stopped():
		return chaos.Seen(history.NotInstalled, state.Time, evidence+": not every thread is stopped"), nil
	}
	return chaos.Seen(history.Installed, sent.Time, evidence), nil
}

// resumed continues a target and checks that none of its threads is stopped any more, except by another active pause.
func (n stopped) resumed(ctx context.Context) (history.Receipt, error) {
	if r, ended := endedMeanwhile(ctx, n.pausable, n.pid); ended {
		return r, nil
	}
	going, failed := n.Resume(ctx)
	state, others, err := around(func() int { return pauses(n.pausable) },
		func() (chaos.ProcessState, error) { return n.Inspect(ctx) })
	evidence := fmt.Sprintf("%s: %s", n.Name(), state)
	switch {
	case err != nil:
		return history.Receipt{}, errors.Join(failed, fmt.Errorf("its state could not be read: %w", err))
	case state.Gone():
		return chaos.Seen(history.Installed, state.Time, evidence+": it ended meanwhile"), nil
	case failed != nil:
		return history.Receipt{Time: state.Time, Evidence: evidence}, failed
	case (state.Threads["T"] > 0 || state.Waits) && others > 0:
		return chaos.Seen(history.Installed, state.Time,
			fmt.Sprintf("%s: %d other pauses of it are active", evidence, others)), nil
	case state.Threads["T"] > 0 || state.Waits:
		return chaos.Seen(history.NotInstalled, state.Time, evidence+": it is still stopped"),
			errors.New("it is still stopped")
	}
	return chaos.Seen(history.Installed, going.Time, evidence), nil
}

// endedMeanwhile reports whether the stopped or frozen process has ended. A node that itself knows its process runs is
// not inspected: that would delay the resumption.
func endedMeanwhile(ctx context.Context, n interface {
	chaos.Node
	chaos.Inspector
}, pid int,
) (r history.Receipt, ended bool) {
	if p, ok := chaos.As[interface{ PID() int }](n); ok && p.PID() == pid {
		return r, false
	}
	state, err := n.Inspect(ctx)
	if err != nil || !state.Gone() && state.PID == pid {
		return r, false
	}
	return chaos.Seen(history.Installed, state.Time, fmt.Sprintf("%s: %s: it ended meanwhile", n.Name(), state)), true
}

// around calls look and returns how many others were active, before or after it: one may begin or be healed meanwhile.
func around[T any](standing func() int, look func() (T, error)) (seen T, others int, err error) {
	before := standing()
	seen, err = look()
	return seen, max(before, standing()), err
}

// pauses returns the number of active pauses of a node, if it counts them.
func pauses(n chaos.Node) int {
	if c, ok := chaos.As[interface{ Pauses() int }](n); ok {
		return c.Pauses()
	}
	return 0
}
