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

// Retry is the policy of a lock that waits by asking again. On a contended lock the policy is the result, so every
// report names it.
type Retry struct {
	// between two attempts; 0: the next one follows at once
	Delay time.Duration `yaml:"delay" json:"delay_ns"`
	// each delay is drawn from Delay times 1-Jitter to 1+Jitter
	Jitter float64 `yaml:"jitter" json:"jitter"`
	// each delay of an acquire is that many times the one before; 0 and 1: all are alike
	Growth float64       `yaml:"growth" json:"growth,omitempty"`
	Most   time.Duration `yaml:"most" json:"most_ns,omitempty"` // to which delays grow; 0: without end
	Tries  int           `yaml:"tries" json:"tries"`            // attempts of one acquire; 0: until its context ends
}

// String names the policy as reports show it.
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

// Check returns an error that names the key that is wrong.
func (r Retry) Check() error {
	if r.Delay != 0 {
		if err := CheckDuration("retry.delay", r.Delay, 100*time.Microsecond); err != nil {
			return err
		}
	}
	switch {
	case r.Growth != 0 && r.Growth < 1:
		return fmt.Errorf("retry.growth is %g; it must be 1 (all delays are alike) or more", r.Growth)
	case r.Growth > 1 && r.Delay == 0:
		return fmt.Errorf("retry.growth is %g, and a retry.delay of 0s does not grow", r.Growth)
	case r.Most != 0 && r.Most < r.Delay:
		return fmt.Errorf("retry.most is %s; it must be at least retry.delay, which is %s", r.Most, r.Delay)
	}
	if r.Jitter < 0 || r.Jitter > 1 {
		return fmt.Errorf("retry.jitter is %g; it must be from 0 to 1", r.Jitter)
	}
	if r.Tries < 0 {
		return fmt.Errorf("retry.tries is %d; it must be 0 (until the acquire's time is over) or more", r.Tries)
	}
	return nil
}

// CheckDuration refuses a duration below least, which is what a number without a unit turns into.
func CheckDuration(key string, d, least time.Duration) error {
	if d < least {
		return fmt.Errorf("%s is %s; it must be at least %s, with a unit such as 10ms", key, d, least)
	}
	return nil
}

// Poll calls try until it grants, fails in a way whose outcome nobody knows, was called Tries times, or ctx ends. It
// asks again only where the attempt certainly granted nothing. When ctx ends between two attempts the last attempt's
// error is returned, so that the caller learns that nothing was granted and why. Where ctx ends within an attempt, the
// error keeps what that leaves open, with the reason of the attempts before: the wait was for a lock that was held. It
// announces each attempt (lock.Attempt).
func (r Retry) Poll(ctx context.Context, random *rand.Rand, try func(context.Context) (lock.Grant, error)) (lock.Grant,
	error,
) {
	next := r.Delay
	var timer *time.Timer // of no use to an attempt that succeeds
	var held error        // what the last attempt was told that the service answered
	began := time.Now()
	for tries := 1; ; tries++ {
		lock.Attempt(ctx)
		g, err := try(ctx)
		if errors.Is(err, lock.ErrContended) {
			held = err
		} else if held != nil && over(ctx) && errors.Is(err, lock.ErrNotSent) {
			// it was not asked once more
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

// over reports whether ctx has ended, or is about to: a connection with the same deadline may tell of it first.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// cutOff adds to the error of an attempt that the end of ctx cut off why the ones before had not been granted, held:
// else all that is told of a wait for a lock that was held is that its last request had no answer.
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

// longest is to which delays grow that have no other bound: beyond it nobody waits.
const longest = time.Hour

// after is the delay that follows.
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
