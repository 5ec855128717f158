package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// slowUser is granted each lock after a delay.
type slowUser struct {
	lock.Locker
	takes time.Duration
}

func (u slowUser) Acquire(context.Context, lock.Request) (lock.Grant, error) {
	time.Sleep(u.takes)
	return lock.Grant{}, nil
}

func (slowUser) Release(context.Context, lock.Grant) error { return nil }

// TestOnlyASlowServiceExcusesALapse lets a grant lapse while the service answers at once, and while it is slow. A
// slow service excuses nothing else.
func TestOnlyASlowServiceExcusesALapse(t *testing.T) {
	const ttl = time.Second
	other := errors.New("not counted from the send time")
	for name, c := range map[string]struct {
		takes         time.Duration
		finding, want error
	}{
		"prompt":            {ttl / 100, errLapsed, errLapsed},
		"slow":              {ttl / 2, errLapsed, errSkip},
		"slow, not a lapse": {ttl / 2, other, other},
		"slow, no finding":  {ttl / 2, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := besideProbes(t.Context(), &bench{ttl: ttl}, slowUser{takes: c.takes}, func() error {
					time.Sleep(2 * ttl)
					return c.finding
				})
				if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) || c.want == errLapsed && errors.Is(err, errSkip) {
					t.Errorf("says %v, should say %v", err, c.want)
				}
			})
		})
	}
}

// doubtful answers each acquire with the next error; nil is a grant.
type doubtful struct {
	lock.Locker
	answers []error
}

func (d *doubtful) Acquire(ctx context.Context, _ lock.Request) (lock.Grant, error) {
	if len(d.answers) == 0 {
		<-ctx.Done()
		return lock.Grant{}, ctx.Err()
	}
	err := d.answers[0]
	d.answers = d.answers[1:]
	return lock.Grant{}, err
}

// TestAnAttemptInDoubtIsMadeAgain, and a grant that it may have left behind is waited for. A certain "no" is a
// finding at once.
func TestAnAttemptInDoubtIsMadeAgain(t *testing.T) {
	lost := errors.New("i/o timeout")
	for name, c := range map[string]struct {
		answers []error
		granted bool
	}{
		"granted":                      {[]error{nil}, true},
		"in doubt":                     {[]error{lost, lost, nil}, true},
		"in doubt, and its own grant":  {[]error{lost, lock.ErrContended, nil}, true},
		"lost while it waited":         {[]error{lock.ErrLost, nil}, true},
		"a connect that timed out":     {[]error{lock.ErrNotSent, lock.ErrNotSent, nil}, true},
		"and then contended":           {[]error{lock.ErrNotSent, lock.ErrContended, nil}, false},
		"contended":                    {[]error{lock.ErrContended, nil}, false},
		"in doubt until time is over":  {[]error{lost}, false},
		"contended until time is over": {slices.Repeat([]error{lost, lock.ErrContended}, 1000), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := grantOf(t.Context(), (&doubtful{answers: c.answers}).Acquire, lock.Request{}, soon, "a free lock")
				if (err == nil) != c.granted {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// slow is a connection that fails a few times to make a user, like a busy service.
type slow struct {
	backends.Connection
	fails int
}

func (s *slow) Locker(context.Context, int) (lock.Locker, error) {
	if s.fails--; s.fails >= 0 {
		return nil, fmt.Errorf("no session: %w", context.DeadlineExceeded)
	}
	return &doubtful{}, nil
}

// TestAUserOfASlowServiceIsMadeAgain, but not for ever.
func TestAUserOfASlowServiceIsMadeAgain(t *testing.T) {
	t.Parallel()
	for fails, ok := range map[int]bool{0: true, mayBeUnsure: true, mayBeUnsure + 1: false} {
		if _, err := (&bench{}).userOf(t.Context(), &slow{fails: fails}); (err == nil) != ok {
			t.Errorf("after %d times too slow: %v", fails, err)
		}
	}
}
