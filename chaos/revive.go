package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// Time limits of faults and their heals.
const (
	ReviveTimeout = 15 * time.Second      // until a started node serves, after its start delay
	AskTimeout    = time.Second           // for one question
	PollEvery     = 10 * time.Millisecond // between two looks

	reviveGrace = 2 * time.Second // the same while other faults may prevent it
)

// inspected is a node whose process can be seen.
type inspected interface {
	Node
	Inspector
}

// Revive starts a killed node and waits until it serves again. While other faults are active it need only answer: a
// quorum member cannot serve before enough of the others are healed, which may come later. A node that cannot be
// restarted, such as a client, stays dead; that is its healed state.
func Revive(ctx context.Context, n inspected, s Scope) (history.Receipt, error) {
	starter, ok := As[Starter](n)
	if !ok || !starter.Restartable() {
		return Seen(history.Installed, 0, n.Name()+" stays dead: such nodes are not restarted"), nil
	}
	delay := startDelay(n)
	ctx, cancel := context.WithTimeout(ctx, ReviveTimeout+delay)
	defer cancel()
	from := clock.Now()
	started, err := restarted(ctx, n, starter)
	if err != nil {
		return history.Receipt{}, err
	}
	waits, err := servesBeside(ctx, n.Name(), s)
	if err != nil {
		return history.Receipt{}, err
	}
	state, err := n.Inspect(ctx)
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	}
	took := time.Duration(clock.Now() - from).Round(time.Millisecond)
	evidence := fmt.Sprintf("%s: %s", n.Name(), state)
	if !started {
		evidence += ", was running already"
	} else if delay > 0 {
		evidence += fmt.Sprintf(", whose start was delayed by %s", delay)
	}
	switch {
	case s.Service == nil:
		evidence += "; there is no service to ask"
	case waits:
		evidence += "; it does not serve yet, other faults are active"
	case started:
		evidence += fmt.Sprintf(", serves again %s after the request to start", took)
	default:
		evidence += " and serves"
	}
	if state.Gone() {
		return Seen(history.NotInstalled, state.Time, evidence), errors.New("it ended again")
	}
	return Seen(history.Installed, state.Time, evidence), nil
}

// restarted waits until the old process is reaped and starts a new one. If the node runs already, started is false.
func restarted(ctx context.Context, n inspected, starter Starter) (started bool, err error) {
	for starter.Running() {
		state, err := n.Inspect(ctx)
		if err == nil && !state.Gone() {
			return false, nil
		}
		if err := clock.Sleep(ctx, PollEvery); err != nil {
			return false, fmt.Errorf("its old process was not reaped: %w", err)
		}
	}
	return true, starter.Start(ctx)
}

// servesBeside waits until the node serves. If it does not within reviveGrace while other faults are active, waits is
// true: the node depends on their heals. The final check of the run demands that it serves.
func servesBeside(ctx context.Context, node string, s Scope) (waits bool, err error) {
	for s.Service != nil {
		looking, cancel := context.WithTimeout(ctx, reviveGrace)
		err := Serves(looking, s.Service, node)
		cancel()
		switch {
		case err == nil:
			return false, nil
		case ctx.Err() != nil:
			return false, err
		case s.Run != nil && s.Run.Others() > 0 && answersItself(ctx, s.Service, node):
			return true, nil
		}
	}
	return false, nil
}

// answersItself reports whether a node answers at all. If the service has no fact for that, a running process suffices.
func answersItself(ctx context.Context, service Observer, node string) bool {
	if _, ok := service.Facts()[FactAnswers]; !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	answer, err := service.Ask(ctx, node, FactAnswers)
	return err == nil && answer == "true"
}

// Serves waits until the node answers a request of its own protocol.
func Serves(ctx context.Context, service Observer, node string) error {
	for {
		asking, cancel := context.WithTimeout(ctx, AskTimeout)
		answer, err := service.Ask(asking, node, FactServes)
		cancel()
		if err == nil && answer == "true" {
			return nil
		}
		if waited := clock.Sleep(ctx, PollEvery); waited != nil {
			return errors.Join(fmt.Errorf("it does not serve (last answer %q): %w", answer, waited), err)
		}
	}
}
