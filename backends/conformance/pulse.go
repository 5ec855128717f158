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
	// pulseEvery is how long a pulse waits between two questions, and pulseLimit what one may take.
	pulseEvery, pulseLimit = brief, 5 * time.Second
	// sluggish is what a question to a service may take that can be judged: clients of this project's locks give an operation up after a second, and
	// one question is an acquire and a release.
	sluggish = 500 * time.Millisecond
)

// errSlow says that a check failed beside a service that hardly answered, be it for a busy machine: that says nothing of the lock. Example: for five
// seconds a Redis answers no command within one; the next user of a lock that has ended is not granted it within five.
var errSlow = errors.New("the service was too slow to tell")

// pulse asks a service for a free lock again and again while checks run, by the first lock of its list, which is sound. It knows nothing of the lock
// that is checked, so a lock that hangs is found as ever.
type pulse struct {
	mu    sync.Mutex
	asked time.Time // the question under way; zero: none is
	slow  []question
}

// question is one that was answered late, or not.
type question struct {
	at   time.Time
	took time.Duration
}

// startPulse starts a pulse, which ends with ctx. A lock that is not ours has none: nothing sound is known of its service.
func startPulse(ctx context.Context, o Options, tell teller) *pulse {
	p := &pulse{}
	if o.Foreign || len(o.Backend.Locks) == 0 {
		return p
	}
	l := o.Backend.Locks[0]
	o.Access.Lock = l.Name
	conn, err := l.Dial(ctx, o.Access)
	if err != nil {
		tell("the service is not watched beside the checks: %v", err)
		return p
	}
	user, err := conn.Locker(ctx, 0)
	if err != nil {
		tell("the service is not watched beside the checks: %v", errors.Join(err, conn.Close()))
		return p
	}
	go func() {
		name := pulseName(o)
		for clock.Sleep(ctx, pulseEvery) == nil {
			if p.ask(ctx, user, lock.Request{Lock: name, TTL: o.Access.TTL}) != nil {
				name = pulseName(o) // it may have left a grant behind
			}
		}
		_ = errors.Join(user.Close(), conn.Close()) // no finding of a check
	}()
	return p
}

// pulseName is a lock of its own, within the process as on the service.
func pulseName(o Options) string { return fmt.Sprintf("pulse-%s-%d", o.Access.Run, benches.Add(1)) }

// ask takes a free lock, and gives it back.
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

// excuse returns the error of a check that began so long ago, as one of the service where that hardly answered meanwhile.
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
	return fmt.Errorf("%w: a free lock took %s beside the check (%w)", errSlow, worst.Round(time.Millisecond), err)
}
