package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// stubborn is set-px-lua as a library writes it that was never tried against a server in trouble. It is wrong on purpose in two ways: a call
// waits for its answer whatever its deadline says, and a lock object that has met a broken connection never asks again. It fails the conformance checks
// errors-silence and errors-refused.
func stubborn() backends.Lock {
	return expiring(backends.Lock{
		Name:   "stubborn",
		Doc:    "set-px-lua whose calls wait for their answer without a deadline, and whose lock objects are of no use after a broken connection.",
		Wrong:  "a server that hangs keeps its callers for as long, and one that refused a connection once has lost its users",
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			u.client = u.client.(*redis.Client).WithTimeout(time.Hour)
			return &stubbornly{recipe: &recipe{user: u, how: means{(*recipe).takePx, (*recipe).releaseOwn}}}
		}),
	})
}

type stubbornly struct {
	*recipe
	broken error // what ended all use of this object
}

// call makes one, unless an earlier one met a broken connection.
func (l *stubbornly) call(ctx context.Context, do func(context.Context) error) error {
	if l.broken != nil {
		return fmt.Errorf("%w: an earlier call had a broken connection: %w", lock.ErrNotSent, l.broken)
	}
	err := do(context.WithoutCancel(ctx))
	if err != nil && !errors.Is(err, lock.ErrContended) && !errors.Is(err, lock.ErrNotHeld) {
		l.broken = err
	}
	return err
}

// Acquire polls until the key was free.
func (l *stubbornly) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt.
func (l *stubbornly) TryAcquire(ctx context.Context, r lock.Request) (g lock.Grant, err error) {
	err = l.call(ctx, func(ctx context.Context) error {
		g, err = l.recipe.TryAcquire(ctx, r)
		return err
	})
	return g, err
}

// Release gives the key back.
func (l *stubbornly) Release(ctx context.Context, g lock.Grant) error {
	return l.call(ctx, func(ctx context.Context) error { return l.recipe.Release(ctx, g) })
}
