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
	first, _ := g.ValidUntil.Time()
	switch b.lock.Offers.Renewal {
	case "background":
		return renewedBehind(ctx, b, a, other, g)
	case "call":
	default:
		return fmt.Errorf("unknown way of renewal %q", b.lock.Offers.Renewal)
	}
	r, ok := a.(lock.Renewer)
	if !ok {
		return errors.New("no Renewer, though the lock says so")
	}
	clock.Sleep(ctx, b.ttl/2)
	g, err = r.Renew(ctx, g, b.ttl)
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if end, _ := g.ValidUntil.Time(); !end.After(first) {
		return errors.New("the validity did not grow")
	}
	clock.Sleep(ctx, time.Until(first)+b.ttl/4)
	if err := b.refusal(ctx, other, "after the first TTL of a renewed grant"); err != nil {
		return err
	}
	if err := a.Release(ctx, g); err != nil {
		return fmt.Errorf("release of a renewed grant: %w", err)
	}
	if _, err := r.Renew(ctx, g, b.ttl); !errors.Is(err, lock.ErrNotHeld) && !errors.Is(err, lock.ErrLost) {
		return fmt.Errorf("renewal of a released grant: %w", orNil(err))
	}
	return nil
}

// renewedBehind holds for two TTLs under a keep-alive.
func renewedBehind(ctx context.Context, b *bench, a, other lock.Locker, g lock.Grant) error {
	w, ok := a.(lock.Watcher)
	if !ok {
		return errors.New("no Watcher, though the lock renews in the background")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end, _ := g.ValidUntil.Time()
	over := time.After(2 * b.ttl)
	grew := 0
	changes := w.Watch(ctx, g)
	for {
		select {
		case c, ok := <-changes:
			if !ok || c.Lost {
				return errors.New("lost in spite of its keep-alive")
			}
			if t, _ := c.ValidUntil.Time(); t.After(end) {
				end = t
				grew++
			}
			continue
		case <-over:
		}
		break
	}
	if grew < 2 {
		return fmt.Errorf("the validity grew %d times in two TTLs", grew)
	}
	if !time.Now().Before(end) {
		return errors.New("the validity ended in spite of the keep-alive")
	}
	return b.refusal(ctx, other, "after two TTLs of a grant that is kept alive")
}
