package chaos

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/history"
)

// pause stops a process with SIGSTOP, as a long garbage collection, a live migration or a suspended laptop would. Its
// connections stay open and the kernel goes on to acknowledge what arrives; only an answer of its own shows that it is
// gone.
type pause struct{}

func pauseKind() Kind {
	return Kind{
		Name: "pause",
		Doc: "Stops the target with SIGSTOP until it is healed with SIGCONT; receipt: every thread of it is in state T, " +
			"as seen from outside.",
		Needs:   []Capability{CanInspect, CanPause},
		Lasting: true,
		Stops:   true,
		New: func(decode func(any) error) (Fault, error) {
			f := pause{}
			return f, decode(&f)
		},
	}
}

type pausable interface {
	Node
	Pauser
}

// Inject stops all targets at once and looks at each of them once more.
func (pause) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	targets, err := capable[pausable](s.On, CanPause)
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	receipt, err := onEach(targets, func(n pausable) (history.Receipt, error) {
		if _, err := n.Pause(ctx); err != nil {
			return history.Receipt{}, err
		}
		state, err := n.Inspect(ctx)
		evidence := fmt.Sprintf("%s: %s", n.Name(), state)
		switch {
		case err != nil:
			return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
		case !state.Stopped():
			return seen(history.NotInstalled, state.Time, evidence+": not every thread is stopped"), nil
		}
		return seen(history.Installed, state.Time, evidence), nil
	})
	heal := func(ctx context.Context) (history.Receipt, error) { return onEach(targets, resumed(ctx)) }
	return heal, receipt, err
}

// resumed continues a target and sees that none of its threads is stopped any more.
func resumed(ctx context.Context) func(pausable) (history.Receipt, error) {
	return func(n pausable) (history.Receipt, error) {
		_, failed := n.Resume(ctx)
		state, err := n.Inspect(ctx)
		evidence := fmt.Sprintf("%s: %s", n.Name(), state)
		switch {
		case err != nil:
			return history.Receipt{}, errors.Join(failed, fmt.Errorf("its state could not be read: %w", err))
		case state.Gone():
			return seen(history.Installed, state.Time, evidence+": it ended meanwhile"), nil
		case failed != nil:
			return history.Receipt{Time: state.Time, Evidence: evidence}, failed
		case state.Threads["T"] > 0:
			return seen(history.NotInstalled, state.Time, evidence+": it is still stopped"), errors.New("it is still stopped")
		}
		return seen(history.Installed, state.Time, evidence), nil
	}
}

// nothingToHeal is the heal of an injection that did nothing at all.
func nothingToHeal(context.Context) (history.Receipt, error) {
	return seen(history.Installed, 0, "nothing had been done"), nil
}
