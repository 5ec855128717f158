package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// promptAnswers is how many undelayed grants are measured. The one with the most validity left counts, because a busy
// machine can only leave less.
const promptAnswers = 3

// countedFromSending requires that every promise counts from the send time of its request. An answer delayed by 0.3
// TTL must leave that much less validity, for grants, renewals and keep-alives. The remainder is compared with the
// lock's own undelayed one, because some locks subtract more than the clock drift.
//
// It sees only the last promise before the user learns of it. An earlier promise that another follows at once is left
// to the adapters' unit tests: etcd's LeaseGrant before the first keep-alive, ZooKeeper's connect before the first
// request.
func countedFromSending(ctx context.Context, b *bench) error {
	a, err := b.distant(ctx)
	if err != nil {
		return err
	}
	prober, err := b.user(ctx)
	if err != nil {
		return err
	}
	return besideProbes(ctx, b, prober, func() error {
		r := &remaining{ttl: b.ttl, delay: 3 * b.ttl / 10}
		for range promptAnswers {
			if err := b.promises(ctx, a, r.atOnce); err != nil {
				return fmt.Errorf("while answers come at once: %w", err)
			}
		}
		late, err := b.answerLate(ctx, a, r.delay)
		if err != nil {
			return err
		}
		return b.promises(late, a, r.late)
	})
}

// answerLate delays the answers to the user. Without a network the user is stopped at the last point of its acquire,
// which every lock announces after the answer.
func (b *bench) answerLate(ctx context.Context, a distant, d time.Duration) (context.Context, error) {
	if a.gate != nil {
		a.gate.answerLate(d)
		return ctx, nil
	}
	points, err := pointsOfAcquire(ctx, b)
	if err != nil {
		return ctx, err
	}
	if len(points) == 0 {
		return ctx, fmt.Errorf("%w: there is no network, and an acquire announces no point", errSkip)
	}
	b.tell("there is no network: the answer to an acquire is delayed at %s, the one to a renewal not at all",
		points[len(points)-1])
	return lock.Arm(ctx, func(ctx context.Context, p string) {
		if p == points[len(points)-1] {
			clock.Sleep(ctx, d)
		}
	}), nil
}

// hearer judges a promise at the moment when its user learns of it.
type hearer func(what string, v lock.Validity) error

// promises acquires the lock, renews it in the lock's way, and releases it.
func (b *bench) promises(ctx context.Context, a distant, hear hearer) error {
	g, err := b.grantWithin(ctx, a, 2*soon, "a free lock")
	if err != nil {
		return err
	}
	if err := hear("a grant", g.ValidUntil); err != nil {
		return err
	}
	switch b.lock.Offers.Renewal {
	case "call":
		err = renewed(ctx, a, &g, b.ttl, hear)
	case "background":
		err = keptAlive(ctx, a, g, b.ttl, hear)
	}
	if err != nil {
		return err
	}
	return freed(ctx, a, g)
}

// renewed makes one renewal. Without a network no answer can be delayed, to a keep-alive neither.
func renewed(ctx context.Context, a distant, g *lock.Grant, ttl time.Duration, hear hearer) error {
	r, ok := a.Locker.(lock.Renewer)
	if !ok {
		return errors.New("no Renewer, although the lock declares it")
	}
	next, err := r.Renew(ctx, *g, ttl)
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	*g = next
	if a.gate == nil {
		return nil
	}
	return hear("a renewal", next.ValidUntil)
}

// keepAlives is how many keep-alives are awaited per grant. The answer to the first may have come together with the
// grant's.
const keepAlives = 2

func keptAlive(ctx context.Context, a distant, g lock.Grant, ttl time.Duration, hear hearer) error {
	w, ok := a.Locker.(lock.Watcher)
	if !ok {
		return errors.New("no Watcher, although the lock renews in the background")
	}
	ctx, cancel := context.WithTimeout(ctx, 3*ttl+soon)
	defer cancel()
	changes := w.Watch(ctx, g)
	for heard := 0; heard < keepAlives; heard++ {
		c, ok := <-changes
		if !ok || c.Lost {
			return fmt.Errorf("%w: lost, or silent, after %d keep-alives", errLapsed, heard)
		}
		if a.gate == nil {
			continue
		}
		if err := hear("a keep-alive", c.ValidUntil); err != nil {
			return err
		}
	}
	return nil
}

// remaining compares how much of promises is left when their user learns of them.
type remaining struct {
	ttl, delay time.Duration
	prompt     time.Duration // the most that was left after an undelayed answer
}

// left returns how much of a promise is left now.
func left(what string, v lock.Validity) (time.Duration, error) {
	end, ok := v.Time()
	if !ok {
		return 0, fmt.Errorf("%s has no end", what)
	}
	return time.Until(end), nil
}

// atOnce records a promise with an undelayed answer.
func (r *remaining) atOnce(what string, v lock.Validity) error {
	d, err := left(what, v)
	if err != nil {
		return err
	}
	r.prompt = max(r.prompt, d)
	return nil
}

// late rejects a promise that the delayed answer hardly shortened. It allows half of the delay, for a machine on
// which even undelayed answers were slow.
func (r *remaining) late(what string, v lock.Validity) error {
	d, err := left(what, v)
	if err != nil {
		return err
	}
	if most := min(r.prompt-r.delay/2, r.ttl-r.delay); d > most {
		return fmt.Errorf("%s is valid for %s if its answer comes %s late, for %s if it comes at once: the validity is not counted from the send time",
			what, d, r.delay, r.prompt)
	}
	return nil
}
