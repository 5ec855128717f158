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

// looks is how often lock wasteful reads its key when it has taken or deleted it.
const looks = 50

// wasteful is set-px-lua at a price that nobody should pay. It is wrong on purpose in what it costs, and right in whom it grants the lock. It
// opens a connection for each call, reads the key fifty times when it has taken or deleted it, and passes the time between two attempts in a
// loop. Each is the positive control of a bound of the default suite. It fails the conformance check validity-late, since fifty-one late answers outlast a
// grant, and errors-silence, which does not know that a request cannot have been sent where a connection could not be made.
func wasteful() backends.Lock {
	return expiring(backends.Lock{
		Name:   "wasteful",
		Doc:    "set-px-lua over a new connection for each call, which reads the key fifty times afterwards, and waits in a busy loop.",
		Wrong:  "it costs a connection for each call, fifty requests beside each that is needed, and a core for each waiter",
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			o := *u.client.(*redis.Client).Options()
			o.MaxRetries = -1 // what was none there is written as 0, which means three here
			return wastefully{&recipe{user: u, how: means{(*recipe).takePx, (*recipe).releaseOwn}}, &o}
		}),
	})
}

type wastefully struct {
	*recipe
	options *redis.Options
}

// call does something over a connection of its own.
func (l wastefully) call(ctx context.Context, name string, do func() error) error {
	client := redis.NewClient(l.options)
	client.AddHook(sendHook{})
	defer func() { _ = client.Close() }()
	l.client = client
	if err := do(); err != nil {
		return err
	}
	for range looks {
		_ = client.Get(ctx, l.keys.key(name)).Err() // the answer is of no use
	}
	return nil
}

// Acquire asks every now and then, and never sleeps.
func (l wastefully) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	for {
		lock.Attempt(ctx)
		g, err := l.TryAcquire(ctx, r)
		if !errors.Is(err, lock.ErrContended) || ctx.Err() != nil {
			return g, err
		}
		for until := time.Now().Add(l.params.Retry.Delay); time.Now().Before(until) && ctx.Err() == nil; { //nolint:revive // the loop is the point
		}
	}
}

// TryAcquire makes one attempt.
func (l wastefully) TryAcquire(ctx context.Context, r lock.Request) (g lock.Grant, err error) {
	err = l.call(ctx, r.Lock, func() error {
		g, err = l.recipe.TryAcquire(ctx, r)
		return err
	})
	return g, err
}

// Release gives the key back.
func (l wastefully) Release(ctx context.Context, g lock.Grant) error {
	return l.call(ctx, g.Lock, func() error { return l.recipe.Release(ctx, g) })
}

// Check reads the key.
func (l wastefully) Check(ctx context.Context, g lock.Grant) error {
	return l.call(ctx, g.Lock, func() error { return l.recipe.Check(ctx, g) })
}

// Close frees what the user may still hold.
func (l wastefully) Close() error { return l.free(l.params.Timeout, l.Release) }
