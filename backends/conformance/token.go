package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

func tokenChecks() []Check {
	tokens := offers(func(o backends.Offers) bool { return o.Token != backends.TokenNone }, "grants have no token")
	return []Check{
		{
			Name: "token-none", Doc: "a lock without tokens hands one out",
			needs: offers(func(o backends.Offers) bool { return o.Token == backends.TokenNone }, "grants have tokens"),
			run:   tokenNone,
		},
		{
			Name: "token-growth", Doc: "a later grant's token is not higher", least: lasting, needs: tokens,
			run: tokenGrowth,
		},
		{
			Name: "token-stopped", Doc: "a holder that was stopped at a point of its acquire has a token out of order",
			needs: tokens, run: tokenStopped,
		},
	}
}

func tokenNone(ctx context.Context, b *bench) error {
	u, err := b.user(ctx)
	if err != nil {
		return err
	}
	g, err := b.grantWithin(ctx, u, soon, "a free lock")
	if err == nil && g.Token != lock.NoToken {
		err = fmt.Errorf("token %d", g.Token)
	}
	return err
}

// tokenGrowth alternates uncontended and handed-over grants: services take the two numbers from different answers.
func tokenGrowth(ctx context.Context, b *bench) error {
	a, other, err := b.pair(ctx)
	if err != nil {
		return err
	}
	last := lock.NoToken
	ids := map[string]bool{}
	for range 6 {
		g, err := b.grantWithin(ctx, a, soon, "a free lock")
		if err != nil {
			return err
		}
		waiting := b.asks(ctx, other, soon, "a waiter")
		// until it waits; after an earlier release, its grant would be uncontended
		clock.Sleep(ctx, 20*time.Millisecond)
		if err := freed(ctx, a, g); err != nil {
			return err
		}
		got := <-waiting
		if got.err != nil {
			return got.err
		}
		if err := freed(ctx, other, got.grant); err != nil {
			return err
		}
		for _, g := range []lock.Grant{g, got.grant} {
			if g.Token <= last {
				return fmt.Errorf("token %d after %d", g.Token, last)
			}
			if ids[g.ID] {
				return fmt.Errorf("two grants have the id %s", g.ID)
			}
			last, ids[g.ID] = g.Token, true
		}
	}
	return nil
}

// tokenStopped stops a user at each point of its acquire until another user has held the lock, and compares the
// tokens.
func tokenStopped(ctx context.Context, b *bench) error {
	points, err := pointsOfAcquire(ctx, b)
	if err != nil {
		return err
	}
	for _, p := range points {
		if err := stoppedAt(ctx, b, p); err != nil {
			return fmt.Errorf("stopped at %s: %w", p, err)
		}
	}
	return nil
}

// answer is the result of a request for the lock.
type answer struct {
	grant lock.Grant
	err   error
}

// asks has another user ask for the lock in the background.
func (b *bench) asks(ctx context.Context, who lock.Locker, within time.Duration, when string) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		g, err := b.grantWithin(ctx, who, within, when)
		out <- answer{g, err}
	}()
	return out
}

func pointsOfAcquire(ctx context.Context, b *bench) ([]string, error) {
	u, err := b.user(ctx)
	if err != nil {
		return nil, err
	}
	var points []string
	g, err := b.grantWithin(lock.Arm(ctx, func(_ context.Context, p string) { points = append(points, p) }), u, soon,
		"a free lock")
	if err != nil {
		return nil, err
	}
	return points, freed(ctx, u, g)
}

func stoppedAt(ctx context.Context, b *bench, point string) error {
	a, err := b.distant(ctx)
	if err != nil {
		return err
	}
	next, err := b.user(ctx)
	if err != nil {
		return err
	}
	var once sync.Once
	reached, goOn := make(chan struct{}), make(chan struct{})
	armed := lock.Arm(ctx, func(_ context.Context, p string) {
		if p == point {
			once.Do(func() { close(reached); <-goOn })
		}
	})
	done := b.asks(armed, a, 4*b.recovery(), "the user that is stopped")
	select {
	case <-reached:
	case got := <-done:
		return fmt.Errorf("the point was not reached: %w", orNil(got.err))
	}
	a.silence()
	g, err := b.grantWithin(ctx, next, b.recovery(), "while the first user is stopped")
	had := time.Now()
	a.speak()
	if err == nil {
		err = freed(ctx, next, g)
	}
	close(goOn)
	got := <-done
	if err != nil {
		return err
	}
	if got.err != nil {
		return nil //nolint:nilerr // it did not get the lock: no token to compare
	}
	if err := a.Release(ctx, got.grant); err != nil && !lock.Certain(err) {
		return fmt.Errorf("release after the stop: %w", err)
	}
	end, ends := got.grant.ValidUntil.Time()
	later := !ends || end.After(had) // the stopped user's grant had ended when the other user got the lock
	if later && got.grant.Token <= g.Token {
		return fmt.Errorf("the later grant has token %d, the earlier one %d", got.grant.Token, g.Token)
	}
	if !later && got.grant.Token >= g.Token {
		return fmt.Errorf("the earlier grant has token %d, its successor's is %d", got.grant.Token, g.Token)
	}
	return nil
}
