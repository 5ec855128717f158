package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

func mannerChecks() []Check {
	return []Check{
		{
			Name: "cancel", Doc: "a cancelled wait does not return, or leaves something in the queue", least: lasting,
			run: cancelled,
		},
		{Name: "close", Doc: "a closed locker keeps its lock", least: lasting, run: closed},
		{Name: "check", Doc: "the service's answer on a grant is wrong", run: checked},
		{Name: "try", Doc: "a lock that claims immediate answers does not give them", run: try},
		{Name: "points", Doc: "its list of points differs from the announced ones", run: announced},
	}
}

func cancelled(ctx context.Context, b *bench) error {
	a, waiter, g, err := b.holder(ctx)
	if err != nil {
		return err
	}
	third, err := b.user(ctx)
	if err != nil {
		return err
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := waiter.Acquire(wait, b.request())
		done <- err
	}()
	clock.Sleep(ctx, 100*time.Millisecond) // until it waits; an earlier cancel finds less, but nothing wrong
	cancel()
	within := b.ttl / 2 // a request left in the queue would have the lock for a TTL
	select {
	case err := <-done:
		if err == nil {
			return errors.New("granted while another user holds it")
		}
		if b.onlyWaits() && !lock.Certain(err) { // it may have left something behind, until that expires
			within = b.recovery()
			b.tell("a cancelled wait had an unknown outcome; the lock must be free within %s: %v", within, err)
		}
	case <-time.After(soon):
		return fmt.Errorf("still waiting %s after it was cancelled", soon)
	}
	if err := freed(ctx, a, g); err != nil {
		return err
	}
	_, err = b.grantWithin(ctx, third, within, "after the waiter had gone and the holder released")
	return err
}

func closed(ctx context.Context, b *bench) error {
	a, other, _, err := b.holder(ctx)
	if err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	_, err = b.grantWithin(ctx, other, b.ttl/2, "after the holder's locker was closed")
	return err
}

func checked(ctx context.Context, b *bench) error {
	a, err := b.distant(ctx)
	if err != nil {
		return err
	}
	c, ok := a.Locker.(lock.Checker)
	if !ok {
		return nil
	}
	g, err := b.grantWithin(ctx, a, soon, "a free lock")
	if err != nil {
		return err
	}
	if err := c.Check(ctx, g); err != nil {
		return fmt.Errorf("check of a valid grant: %w", err)
	}
	if err := freed(ctx, a, g); err != nil {
		return err
	}
	if err := c.Check(ctx, g); !errors.Is(err, lock.ErrNotHeld) {
		return fmt.Errorf("check of a released grant: %w", orNil(err))
	}
	if !b.lock.Offers.Expires {
		return nil
	}
	if g, err = b.grantWithin(ctx, a, soon, "a free lock"); err != nil {
		return err
	}
	other, err := b.user(ctx)
	if err != nil {
		return err
	}
	a.silence()
	// Another user's grant shows that this one has ended.
	h, err := b.grantWithin(ctx, other, b.recovery(), "after the holder became silent")
	if err == nil {
		err = freed(ctx, other, h)
	}
	if err != nil {
		return err
	}
	a.speak()
	if err := c.Check(ctx, g); !errors.Is(err, lock.ErrNotHeld) {
		return fmt.Errorf("check of an expired grant: %w", orNil(err))
	}
	return nil
}

func try(ctx context.Context, b *bench) error {
	u, err := b.user(ctx)
	if err != nil {
		return err
	}
	t, ok := u.(lock.TryAcquirer)
	if ok != b.lock.Offers.Try {
		return fmt.Errorf("offers.try is %t, the locker's type says %t", b.lock.Offers.Try, ok)
	}
	if !ok {
		return nil
	}
	g, err := grantOf(ctx, t.TryAcquire, b.request(), soon, "an attempt on a free lock")
	if err != nil {
		return err
	}
	return freed(ctx, u, g)
}

// announced compares the points announced in one cycle with the list.
func announced(ctx context.Context, b *bench) error {
	var got []string
	armed := lock.Arm(ctx, func(_ context.Context, p string) { got = append(got, p) })
	u, err := b.user(ctx)
	if err != nil {
		return err
	}
	g, err := b.grantWithin(armed, u, soon, "a free lock")
	if err != nil {
		return err
	}
	if err := u.Release(armed, g); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	listed := slices.DeleteFunc(slices.Clone(b.lock.Points), func(p string) bool {
		return b.lock.Waits && p == "wait-done" // it waits for replicas only if a scenario says so
	})
	if !slices.Equal(got, listed) {
		return fmt.Errorf("a cycle announces %q, but the list has %q", got, listed)
	}
	return nil
}
