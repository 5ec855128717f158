package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSleep sleeps to the end, is woken by the end of its context, and returns at once if there is nothing to wait for.
func TestSleep(t *testing.T) {
	why := errors.New("the run is over")
	for _, c := range []struct {
		name        string
		over        time.Duration // when the context ends; 0: before
		sleep, took time.Duration
		err         error
	}{
		{"to the end", time.Hour, time.Second, time.Second, nil},
		{"woken", time.Second, time.Hour, time.Second, why},
		{"ended before", 0, time.Hour, 0, why},
		{"nothing to wait for", time.Hour, 0, 0, nil},
		{"a time that has passed", time.Hour, -time.Second, 0, nil},
		{"nothing to wait for, and ended", 0, 0, 0, why},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.over == 0 {
					cancel(why)
				}
				defer time.AfterFunc(c.over, func() { cancel(why) }).Stop()
				began := time.Now()
				if err := Sleep(ctx, c.sleep); !errors.Is(err, c.err) {
					t.Errorf("woke with %v, want %v", err, c.err)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("slept %v, want %v", took, c.took)
				}
			})
		})
	}
}
