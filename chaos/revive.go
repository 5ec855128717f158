package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

const (
	reviveTimeout = 15 * time.Second      // until a started node serves, beside the delay of its start
	reviveGrace   = 2 * time.Second       // until a started node serves while other faults may keep it from that
	askTimeout    = time.Second           // for one question
	pollEvery     = 10 * time.Millisecond // between two looks
)

// revived starts a node that was killed and waits until it serves again. While other faults stand it need only answer: a
// member of a quorum cannot serve before enough of the others are healed, which comes after this heal. A node that is never
// started a second time, as a client, stays dead; that is its healed state.
func revived(ctx context.Context, n killable, s Scope) (history.Receipt, error) {
	starter, ok := n.(Starter)
	if !ok || !starter.Restartable() {
		return seen(history.Installed, 0, n.Name()+" stays dead: it is not a node that is started again"), nil
	}
	delay := startDelay(n)
	ctx, cancel := context.WithTimeout(ctx, reviveTimeout+delay)
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
		evidence += fmt.Sprintf(", whose start was put off by %s", delay)
	}
	switch {
	case s.Service == nil:
		evidence += "; there is no service to ask"
	case waits:
		evidence += "; it does not serve yet, other faults stand"
	case started:
		evidence += fmt.Sprintf(", serves again %s after the start was asked for", took)
	default:
		evidence += " and serves"
	}
	if state.Gone() {
		return seen(history.NotInstalled, state.Time, evidence), errors.New("it ended again")
	}
	return seen(history.Installed, state.Time, evidence), nil
}

// restarted waits until the old process was reaped and starts a new one. A node that runs already is left alone; started
// is false then.
func restarted(ctx context.Context, n killable, starter Starter) (started bool, err error) {
	for starter.Running() {
		state, err := n.Inspect(ctx)
		if err == nil && !state.Gone() {
			return false, nil
		}
		if err := clock.Sleep(ctx, pollEvery); err != nil {
			return false, fmt.Errorf("its old process was not reaped: %w", err)
		}
	}
	return true, starter.Start(ctx)
}

// servesBeside waits until the node serves. Where it does not within reviveGrace while other faults stand, waits is true: it
// waits for them. The run's last look at the service demands that it serves.
func servesBeside(ctx context.Context, node string, s Scope) (waits bool, err error) {
	for s.Service != nil {
		looking, cancel := context.WithTimeout(ctx, reviveGrace)
		err := serves(looking, s.Service, node)
		cancel()
		switch {
		case err == nil:
			return false, nil
		case ctx.Err() != nil:
			return false, err
		case s.others() > 0 && answersItself(ctx, s.Service, node):
			return true, nil
		}
	}
	return false, nil
}

// answersItself asks a node whether it answers at all. Where the service cannot tell, that it runs must do.
func answersItself(ctx context.Context, service Observer, node string) bool {
	if _, ok := service.Facts()[FactAnswers]; !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := service.Ask(ctx, node, FactAnswers)
	return err == nil && answer == "true"
}

// serves waits until the node answers a request of its own protocol.
func serves(ctx context.Context, service Observer, node string) error {
	for {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		answer, err := service.Ask(asking, node, FactServes)
		cancel()
		if err == nil && answer == "true" {
			return nil
		}
		if waited := clock.Sleep(ctx, pollEvery); waited != nil {
			return errors.Join(fmt.Errorf("it does not serve (last answer %q): %w", answer, waited), err)
		}
	}
}
