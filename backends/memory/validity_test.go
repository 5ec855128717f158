package memory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/lock"
)

// TestGrantCountsFromItsBeginning stops the user at each point: before its request, and after the store has granted.
func TestGrantCountsFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := lock.Arm(t.Context(), func(context.Context, string) { time.Sleep(100 * time.Millisecond) })
		u := &locker{process: &connection{}, open: context.Background(), store: &store{locks: map[string]*record{}}, held: map[string]*holding{}}
		begun := time.Now().Add(100 * time.Millisecond) // after the point before the request
		g, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Second})
		if err != nil || g.Issued != begun || g.ValidUntil != backends.Validity(begun, time.Second) || !time.Now().After(begun) {
			t.Errorf("%+v, %v; asked at %s", g, err, begun)
		}
		if err := u.Release(ctx, g); err != nil {
			t.Error(err)
		}
	})
}

// TestRenewalCountsFromTheRequest keeps the store busy while the renewal waits for it.
func TestRenewalCountsFromTheRequest(t *testing.T) {
	u := &locker{process: &connection{}, open: context.Background(), store: &store{locks: map[string]*record{}}, held: map[string]*holding{}}
	g, err := u.Acquire(t.Context(), lock.Request{Lock: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	u.store.mu.Lock()
	renewed := make(chan lock.Grant, 1)
	go func() {
		next, err := u.Renew(t.Context(), g, time.Minute)
		if err != nil {
			t.Error(err)
		}
		renewed <- next
	}()
	wait.Until(t, time.Minute, "it asks", func() bool { return u.store.requests.Load() == 2 })
	answered := time.Now()
	u.store.mu.Unlock()
	latest, _ := backends.Validity(answered, time.Minute).Time()
	if end, ok := (<-renewed).ValidUntil.Time(); !ok || !end.Before(latest) {
		t.Errorf("renewed until %s after what a request could have had that was sent at the answer", end.Sub(latest))
	}
	if err := u.Release(t.Context(), g); err != nil {
		t.Error(err)
	}
}
