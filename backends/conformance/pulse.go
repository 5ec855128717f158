package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

const (
	// pulseEvery is the pause between two questions of a pulse, and pulseLimit the time limit of one.
	pulseEvery, pulseLimit = brief, 5 * time.Second
	// sluggish is how slow a question must be for the service to count as too slow to judge its locks. This project's
	// locks give up an operation after a second, and one question is two operations.
	sluggish = 500 * time.Millisecond
)

// errSlow says that a check failed while the service hardly answered, for example on a busy machine, which says nothing
// about the lock. Example: for five seconds a Redis answers no command within one second, so the next user of an ended
// lock is not granted it within five.
var errSlow = errors.New("the service was too slow for a result")

// pulse acquires a free lock again and again while checks run, with the first lock of the backend's list, which is
// sound. It does not use the lock under test, so a lock that hangs is still found.
type pulse struct {
	mu    sync.Mutex
	asked time.Time // start of the pending question; zero: none
	slow  []question
}

// question is an acquire and release that took at least sluggish.
type question struct {
	at   time.Time
	took time.Duration
}

// startPulse starts a pulse that ends with ctx. A foreign lock has none, because no sound lock on its service is
// known.
func startPulse(ctx context.Context, o Options, tell teller) *pulse {
	p := &pulse{}
	if o.Foreign || len(o.Backend.Locks) == 0 {
		return p
	}
	l := o.Backend.Locks[0]
	o.Access.Lock = l.Name
	conn, err := l.Dial(ctx, o.Access)
	if err != nil {
		tell("the service is not watched during the checks: %v", err)
		return p
	}
	user, err := conn.Locker(ctx, 0)
	if err != nil {
		tell("the service is not watched during the checks: %v", errors.Join(err, conn.Close()))
		return p
	}
	go func() {
		name := pulseName(o)
		for clock.Sleep(ctx, pulseEvery) == nil {
			if p.ask(ctx, user, lock.Request{Lock: name, TTL: o.Access.TTL}) != nil {
				name = pulseName(o) // a failed attempt may have left a grant behind
			}
		}
		_ = errors.Join(user.Close(), conn.Close()) // not a finding of a check
	}()
	return p
}

// pulseName returns a lock name that is unique within the process and the service.
func pulseName(o Options) string { return fmt.Sprintf("pulse-%s-%d", o.Access.Run, benches.Add(1)) }

// ask acquires and releases a free lock.
func (p *pulse) ask(ctx context.Context, user lock.Locker, r lock.Request) error {
	began := time.Now()
	p.mu.Lock()
	p.asked = began
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, pulseLimit)
	defer cancel()
	g, err := user.Acquire(bounded, r)
	if err == nil {
		err = user.Release(bounded, g)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked = (time.Time{}); time.Since(began) >= sluggish {
		p.slow = append(p.slow, question{began, time.Since(began)})
	}
	return err
}

// excuse wraps the failure of a check in errSlow if the service hardly answered since the check began. Any other error
// is returned unchanged.
func (p *pulse) excuse(began time.Time, err error) error {
	if err == nil || errors.Is(err, errSkip) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := time.Duration(0)
	for _, q := range p.slow {
		if q.at.Add(q.took).After(began) {
			worst = max(worst, q.took)
		}
	}
	if !p.asked.IsZero() {
		worst = max(worst, time.Since(p.asked))
	}
	if worst < sluggish {
		return err
	}
	return fmt.Errorf("%w: a free lock took %s during the check (%w)", errSlow, worst.Round(time.Millisecond), err)
}
