package conformance

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// slowUser gets each lock after a while.
type slowUser struct {
	lock.Locker
	takes time.Duration
}

func (u slowUser) Acquire(context.Context, lock.Request) (lock.Grant, error) {
	time.Sleep(u.takes)
	return lock.Grant{}, nil
}

func (slowUser) Release(context.Context, lock.Grant) error { return nil }

// TestOnlyASlowServiceExcusesALapse lets a grant lapse beside a service that answers at once, and beside a slow one. A slow one excuses nothing else.
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
