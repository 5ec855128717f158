package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestActs: acts and waits of an injection, in a time that passes only while it waits.
func TestActs(t *testing.T) {
	const ms = int64(time.Millisecond)
	waits := func(ctx context.Context, most, takes time.Duration) {
		defer Waits(ctx, most)()
		time.Sleep(takes)
	}
	acts := func(ctx context.Context, takes, answered time.Duration) {
		ctx, done := Act(ctx)
		defer done()
		time.Sleep(takes)
		if answered != 0 {
			CarriedOut(ctx, Now())
			time.Sleep(answered)
		}
	}
	for _, c := range []struct {
		name                     string
		does                     func(ctx context.Context)
		done, late, waited, over int64 // ms
	}{
		{"nothing", func(context.Context) { time.Sleep(time.Second) }, 0, 0, 0, 0},
		{"an act that takes its time", func(ctx context.Context) { acts(ctx, 2*time.Second, 0) }, 2000, 2000, 0, 0},
		{"an answer that comes late", func(ctx context.Context) { acts(ctx, time.Second, 5*time.Second) }, 1000, 1000, 0, 0},
		{"the last act counts", func(ctx context.Context) { acts(ctx, time.Second, 0); acts(ctx, time.Second, 0) }, 2000, 2000, 0, 0},
		{"a wait on purpose", func(ctx context.Context) {
			waits(ctx, 3*time.Second, 2*time.Second)
			acts(ctx, time.Second, 0)
		}, 3000, 1000, 0, 0},
		{"a wait that was too long", func(ctx context.Context) {
			waits(ctx, time.Second, 4*time.Second)
			acts(ctx, time.Second, 0)
		}, 5000, 4000, 0, 0},
		{"waits that overlap count once", func(ctx context.Context) {
			outer := Waits(ctx, 3*time.Second)
			waits(ctx, time.Second, time.Second)
			waits(ctx, time.Second, time.Second)
			outer()
			acts(ctx, time.Second, 0)
		}, 3000, 1000, 0, 0},
		{"a wait behind the act", func(ctx context.Context) {
			acts(ctx, time.Second, 0)
			waits(ctx, 7*time.Second, 6*time.Second)
		}, 1000, 1000, 6000, 0},
		{"a wait behind the act that was too long", func(ctx context.Context) {
			acts(ctx, time.Second, 0)
			waits(ctx, time.Second, 6*time.Second)
		}, 1000, 1000, 1000, 5000},
		{"what is no part of it", func(ctx context.Context) {
			acts(ctx, time.Second, 0)
			acts(WithoutActs(ctx), time.Second, 0)
		}, 1000, 1000, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer func(was bool, at time.Time) { simulated, zero = was, at }(simulated, zero)
				simulated, zero = true, time.Now().Add(-time.Hour)
				due := Now()
				ctx, a := WithActs(t.Context())
				c.does(ctx)
				done := int64(0)
				if a.Done() != 0 {
					done = a.Done() - due
				}
				waited, over := a.Measured()
				if done != c.done*ms || a.Late(due) != c.late*ms || waited != c.waited*ms || over != c.over*ms {
					t.Errorf("done after %d ms, late by %d ms, waited %d ms, %d too many; want %d, %d, %d, %d",
						done/ms, a.Late(due)/ms, waited/ms, over/ms, c.done, c.late, c.waited, c.over)
				}
			})
		})
	}
	c, done := Act(t.Context()) // outside WithActs
	CarriedOut(c, 1)
	done()
}
