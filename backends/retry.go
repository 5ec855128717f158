package backends

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// Retry is the policy of a lock that waits by retrying. On a contended lock the policy determines the result, so
// every report names it.
type Retry struct {
	// between two attempts; 0: no pause
	Delay time.Duration `yaml:"delay" json:"delay_ns"`
	// each delay is drawn from Delay times 1-Jitter to 1+Jitter
	Jitter float64 `yaml:"jitter" json:"jitter"`
	// each delay of an acquire is Growth times the one before; 0 and 1: constant
	Growth float64       `yaml:"growth" json:"growth,omitempty"`
	Most   time.Duration `yaml:"most" json:"most_ns,omitempty"` // bound of a growing delay; 0: one hour
	Tries  int           `yaml:"tries" json:"tries"`            // attempts of one acquire; 0: until its context ends
}

// String returns the policy as reports show it.
func (r Retry) String() string {
	s := fmt.Sprintf("poll every %s +/- %g %%", r.Delay, r.Jitter*100)
	if r.Delay == 0 {
		s = "poll without a pause"
	}
	if r.Growth > 1 {
		s += fmt.Sprintf(", each time %g times as long", r.Growth)
	}
	if r.Growth > 1 && r.Most > 0 {
		s += fmt.Sprintf(" until it is %s", r.Most)
	}
	if r.Tries > 0 {
		s += fmt.Sprintf(", at most %d times", r.Tries)
	}
	return s
}

// Check returns an error that names the invalid key.
func (r Retry) Check() error {
	if r.Delay != 0 {
		if err := CheckDuration("retry.delay", r.Delay, 100*time.Microsecond); err != nil {
			return err
		}
	}
	switch {
	case r.Growth != 0 && r.Growth < 1:
		return fmt.Errorf("retry.growth is %g; it must be 1 (constant delay) or more", r.Growth)
	case r.Growth > 1 && r.Delay == 0:
		return fmt.Errorf("retry.growth is %g, but a retry.delay of 0s does not grow", r.Growth)
	case r.Most != 0 && r.Most < r.Delay:
		return fmt.Errorf("retry.most is %s; it must be at least retry.delay, which is %s", r.Most, r.Delay)
	}
	if r.Jitter < 0 || r.Jitter > 1 {
		return fmt.Errorf("retry.jitter is %g; it must be from 0 to 1", r.Jitter)
	}
	if r.Tries < 0 {
		return fmt.Errorf("retry.tries is %d; it must be 0 (until the acquire's deadline) or more", r.Tries)
	}
	return nil
}

// CheckDuration rejects a duration below least. A number without a unit decodes to such a small value.
func CheckDuration(key string, d, least time.Duration) error {
	if d < least {
		return fmt.Errorf("%s is %s; it must be at least %s, with a unit such as 10ms", key, d, least)
	}
	return nil
}

// Poll calls try until it grants, fails with an unknown outcome, was called Tries times, or ctx ends. It retries only
// if the attempt certainly granted nothing. If ctx ends between two attempts, Poll returns the last attempt's error:
// certainly nothing was granted, and why. If ctx ends within an attempt, the error keeps that attempt's outcome and
// adds the reason of the attempts before: the lock was held. It announces each attempt (lock.Attempt).
func (r Retry) Poll(ctx context.Context, random *rand.Rand, try func(context.Context) (lock.Grant, error)) (lock.Grant,
	error,
) {
	next := r.Delay
	var timer *time.Timer // created only after a failed attempt
	var held error        // the service's last answer that the lock is held
	began := time.Now()
	for tries := 1; ; tries++ {
		lock.Attempt(ctx)
		g, err := try(ctx)
		if errors.Is(err, lock.ErrContended) {
			held = err
		} else if held != nil && over(ctx) && errors.Is(err, lock.ErrNotSent) {
			// the last attempt was not sent
			err = fmt.Errorf("%w; gave up waiting: %w", held, cmp.Or(ctx.Err(), context.DeadlineExceeded))
		}
		if err == nil || !lock.Certain(err) {
			return g, cutOff(ctx, held, err, began)
		}
		if tries == r.Tries {
			return lock.Grant{}, fmt.Errorf("%w; gave up after %d tries", err, tries)
		}
		pause := r.draw(next, random)
		next = r.after(next)
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return lock.Grant{}, fmt.Errorf("%w; gave up waiting: %w", err, ctx.Err())
		}
	}
}

// over reports whether ctx has ended, or is about to: a connection with the same deadline may report it first.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// cutOff adds to the error of an attempt that the end of ctx cut off why the earlier attempts were refused (held).
// Without that, a wait for a held lock would only say that its last request had no answer.
func cutOff(ctx context.Context, held, err error, began time.Time) error {
	if err == nil || held == nil || !over(ctx) {
		return err
	}
	why, told := lock.ReasonOf(held)
	if !told {
		why = lock.Reason{Cause: lock.CauseWaitOver, N: int64(time.Since(began))}
	}
	return lock.Because(why, err)
}

func (r Retry) draw(delay time.Duration, random *rand.Rand) time.Duration {
	return time.Duration(float64(delay) * (1 + r.Jitter*(2*random.Float64()-1)))
}

// longest bounds growing delays that have no other bound.
const longest = time.Hour

// after returns the next delay.
func (r Retry) after(delay time.Duration) time.Duration {
	if r.Growth <= 1 {
		return delay
	}
	most := longest
	if r.Most > 0 {
		most = r.Most
	}
	return time.Duration(min(float64(delay)*r.Growth, float64(most)))
}

// Random returns the source of randomness of one user of a run.
func Random(run string, user int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(run + "/" + strconv.Itoa(user)))
	return rand.New(rand.NewPCG(h.Sum64(), uint64(user)))
}
