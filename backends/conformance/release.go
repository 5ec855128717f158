package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

func releaseChecks() []Check {
	return []Check{
		{
			Name: "release-forged", Doc: "a release without a grant frees the holder's lock", least: lasting,
			run: releaseForged,
		},
		{
			Name: "release-stale", Doc: "the late release of an old holder frees the new one's lock", needs: expires,
			run: releaseStale,
		},
		{
			Name: "release-between", Doc: "a release that is delayed after its first request frees the new holder's lock",
			needs: func(b *bench) string { return remote(b) + expires(b) }, run: releaseBetween,
		},
		{
			Name: "release-point", Doc: "a release that is stopped at one of its points frees the new holder's lock",
			needs: expires, run: releasePoint,
		},
	}
}

func releaseForged(ctx context.Context, b *bench) error {
	a, other, g, err := b.holder(ctx)
	if err != nil {
		return err
	}
	forged := lock.Grant{Lock: g.Lock, Mode: g.Mode, ID: "forged", Issued: g.Issued, ValidUntil: g.ValidUntil}
	err = other.Release(ctx, forged)
	if free := b.refusal(ctx, other, possession{a, g}, "after a forged release"); free != nil {
		return free
	}
	if !errors.Is(err, lock.ErrNotHeld) {
		return fmt.Errorf("a forged release should be answered with %q, not %w", lock.ErrNotHeld, orNil(err))
	}
	return nil
}

// lateHolder returns a distant user who has the lock and will release it late, its grant, the user who is granted it
// next, and a third one.
func lateHolder(ctx context.Context, b *bench) (a distant, old lock.Grant, next, third lock.Locker, err error) {
	if a, old, next, err = b.distantHolder(ctx); err == nil {
		third, err = b.user(ctx)
	}
	return a, old, next, third, err
}

func releaseStale(ctx context.Context, b *bench) error {
	a, old, next, third, err := lateHolder(ctx, b)
	if err != nil {
		return err
	}
	a.silence()
	g, err := b.lastingWithin(ctx, next, b.recovery(), "after the holder became silent")
	if err != nil {
		return err
	}
	a.speak()
	// The old holder's answer does not matter: some services say yes to a release of a grant that is gone. The new
	// holder's grant does.
	_ = a.Release(ctx, old)
	return b.refusal(ctx, third, possession{next, g}, "after the old holder's late release")
}

// releaseBetween lets one request of a release through, and the next ones only after another user was granted the
// lock. It finds a release that checks the owner in one request and deletes in a second. A release of one request
// passes, because it ends at once.
func releaseBetween(ctx context.Context, b *bench) error {
	a, old, next, third, err := lateHolder(ctx, b)
	if err != nil {
		return err
	}
	a.gate.passOne()
	bounded, cancel := context.WithTimeout(ctx, b.recovery()+soon)
	defer cancel()
	released := make(chan error, 1)
	go func() { released <- a.Release(bounded, old) }()
	g, err := b.lastingWithin(ctx, next, b.recovery(), "after the holder's release had sent its first request")
	came := a.gate.passAll()
	<-released // its result does not matter; the new holder's grant does
	switch {
	case err != nil:
		return err
	case !came && b.o.Foreign:
		return errNameless
	case !came:
		return errors.New("no request of the release had the name of the lock, so none was delayed")
	}
	return stands(ctx, b, possession{next, g}, third, "after the rest of the old holder's release")
}

// releasePoint stops a release at each announced point until another user was granted the lock.
func releasePoint(ctx context.Context, b *bench) error {
	u, err := b.user(ctx)
	if err != nil {
		return err
	}
	g, err := b.grantWithin(ctx, u, soon, "a free lock")
	if err != nil {
		return err
	}
	var points []string
	if err := freed(lock.Arm(ctx, func(_ context.Context, p string) { points = append(points, p) }), u, g); err != nil {
		return err
	}
	for _, p := range points {
		if err := releaseStoppedAt(ctx, b, p); err != nil {
			return err
		}
	}
	return nil
}

// releaseStoppedAt is releasePoint at one point.
func releaseStoppedAt(ctx context.Context, b *bench, point string) error {
	a, old, next, third, err := lateHolder(ctx, b)
	if err != nil {
		return err
	}
	var g lock.Grant
	stopped := false
	err = errors.New("the release did not pass there")
	armed := lock.Arm(ctx, func(_ context.Context, p string) {
		if p != point || stopped {
			return
		}
		stopped = true
		a.silence()
		g, err = b.lastingWithin(ctx, next, b.recovery(), "while the holder's release was stopped")
		a.speak()
	})
	_ = a.Release(armed, old)
	if err == nil {
		err = stands(ctx, b, possession{next, g}, third, "after the old holder's release went on")
	}
	if err == nil {
		err = freed(ctx, next, g)
	}
	if err != nil {
		return fmt.Errorf("point %s: %w", point, err)
	}
	return nil
}

// stands checks several times whether a lock is still held by the user of the grant, because a request that frees it
// may be on its way. It stops when that grant is no longer certainly valid.
func stands(ctx context.Context, b *bench, held possession, third lock.Locker, when string) error {
	const looks = 5
	for i := range looks {
		err := b.refusal(ctx, third, held, when)
		if end, ok := held.grant.ValidUntil.Time(); i > 0 && ok && b.lock.Offers.Renewal != "background" &&
			!time.Now().Before(end) {
			return nil
		}
		if err == nil {
			err = clock.Sleep(ctx, b.ttl/(8*looks))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
