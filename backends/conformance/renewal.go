package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

func renewal(ctx context.Context, b *bench) error {
	a, other, g, err := b.holder(ctx)
	if err != nil {
		return err
	}
	switch b.lock.Offers.Renewal {
	case "background":
		if err := besideProbes(ctx, b, other, func() error { return renewedBehind(ctx, b, a, g) }); err != nil {
			return err
		}
		return b.refusal(ctx, other, possession{a, g}, "after the first TTL of a grant that is kept alive")
	case "call":
		err = renewedByCall(ctx, b, a, other, &g)
		if end, ok := g.ValidUntil.Time(); err != nil && ok && !time.Now().Before(end) {
			return fmt.Errorf("%w: the machine stalled until the grant was over (%w)", errSkip, err)
		}
		return err
	}
	return fmt.Errorf("unknown way of renewal %q", b.lock.Offers.Renewal)
}

// renewedByCall checks the lock when three quarters of the renewal, and with them the first TTL, are over. g is the
// latest grant.
func renewedByCall(ctx context.Context, b *bench, a, other lock.Locker, g *lock.Grant) error {
	r, ok := a.(lock.Renewer)
	if !ok {
		return errors.New("no Renewer, although the lock declares it")
	}
	first, _ := g.ValidUntil.Time()
	clock.Sleep(ctx, b.ttl/2)
	next, err := r.Renew(ctx, *g, b.ttl)
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	*g = next
	if end, _ := g.ValidUntil.Time(); !end.After(first) {
		return errors.New("the validity did not grow")
	}
	clock.Sleep(ctx, time.Until(first)+b.ttl/4)
	if err := b.refusal(ctx, other, possession{a, *g}, "after the first TTL of a renewed grant"); err != nil {
		return err
	}
	if err := freed(ctx, a, *g); err != nil {
		return fmt.Errorf("of a renewed grant: %w", err)
	}
	if _, err := r.Renew(ctx, *g, b.ttl); !notHeld(err) {
		return fmt.Errorf("renewal of a released grant: %w", orNil(err))
	}
	return nil
}

// errLapsed means that a grant ended, or was not renewed, in spite of its keep-alive.
var errLapsed = errors.New("not kept alive")

// besideProbes runs f while prober takes other locks, one after another. If a grant lapsed meanwhile, and one of the
// probes took longer than a quarter of the TTL, the service was too slow for keep-alives as well: the check is skipped.
// Keep-alives are sent every third or half of a TTL.
func besideProbes(ctx context.Context, b *bench, prober lock.Locker, f func() error) error {
	enough := make(chan struct{})
	slowest := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for n := 0; ; n++ {
			began := time.Now()
			r := lock.Request{Lock: fmt.Sprintf("%s-probe-%d", b.name, n), TTL: b.ttl}
			if g, err := prober.Acquire(ctx, r); err == nil {
				_ = prober.Release(ctx, g)
			}
			clock.Sleep(ctx, b.ttl/20)
			most = max(most, time.Since(began))
			select {
			case <-enough:
				slowest <- most
				return
			default:
			}
		}
	}()
	err := f()
	close(enough)
	if d := <-slowest; errors.Is(err, errLapsed) && d > b.ttl/4 {
		return fmt.Errorf("%w: a probe of the service took %s of a TTL of %s (%w)", errSkip, d, b.ttl, err)
	}
	return err
}

// renewedBehind waits with a keep-alive until the first TTL is over and the validity has grown twice before its end.
func renewedBehind(ctx context.Context, b *bench, a lock.Locker, g lock.Grant) error {
	w, ok := a.(lock.Watcher)
	if !ok {
		return errors.New("no Watcher, although the lock renews in the background")
	}
	watch, cancel := context.WithTimeout(ctx, 4*b.ttl+soon)
	defer cancel()
	end, _ := g.ValidUntil.Time()
	over := end.Add(b.ttl / 4)
	grew := 0
	for c := range w.Watch(watch, g) {
		if c.Lost {
			return fmt.Errorf("%w: lost after %d renewals", errLapsed, grew)
		}
		now := time.Now()
		if t, _ := c.ValidUntil.Time(); t.After(end) {
			if now.Before(end) {
				grew++
			}
			end = t
		}
		if grew >= 2 && now.After(over) {
			return nil
		}
	}
	return fmt.Errorf("%w: within %s the validity grew %d times before its end", errLapsed, 4*b.ttl+soon, grew)
}
