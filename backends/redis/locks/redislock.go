package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// redisLock is the library bsm/redislock. Each attempt is one Obtain without the library's retry strategy, which is
// its default; the scenario's policy decides about retries. The adapter adds the send time of the script that
// granted, with a hook of the client: the library itself only knows the TTL that is left at the server.
func redisLock() backends.Lock {
	return expiring(backends.Lock{
		Name:    "redislock",
		Doc:     "The library github.com/bsm/redislock v0.10: a random value set and removed by scripts.",
		Modules: []string{access.GoRedis, "github.com/bsm/redislock"},
		Offers:  backends.Offers{Renewal: "call"},
		Points:  []string{"before-obtain", "obtain-done", "before-release", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			return &redisLockUser{user: u, library: redislock.New(u.client)}
		}),
	})
}

type redisLockUser struct {
	user
	library *redislock.Client
	held    held[*redislock.Lock]
}

// Acquire polls until the lock is obtained.
func (l *redisLockUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt.
func (l *redisLockUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	lock.At(ctx, "before-obtain")
	var o owner
	got, err := l.library.Obtain(sending(ctx, &o), l.keys.Key(r.Lock), r.TTL, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return lock.Grant{}, fmt.Errorf("%w: %w", lock.ErrContended, err)
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("redislock obtain: %w", o.classify(err))
	}
	lock.At(ctx, "obtain-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: got.Token(), Token: lock.NoToken,
		Issued: o.sent, ValidUntil: backends.Validity(o.sent, r.TTL),
	}
	l.held.keep(g, got)
	return g, nil
}

// Release runs the library's script, which deletes only the user's own key.
func (l *redisLockUser) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-release")
	handle, err := l.held.handle(g)
	if err != nil {
		return err
	}
	var o owner
	err = handle.Release(sending(ctx, &o))
	if err != nil && !errors.Is(err, redislock.ErrLockNotHeld) {
		return fmt.Errorf("redislock release: %w", o.classify(err))
	}
	l.held.drop(g)
	lock.At(ctx, "release-done")
	if err != nil {
		return fmt.Errorf("%w: %w", lock.ErrNotHeld, err)
	}
	return nil
}

// Renew runs the library's Refresh, which returns ErrNotObtained if the key is another user's or gone.
func (l *redisLockUser) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	handle, err := l.held.handle(g)
	if err != nil {
		return g, err
	}
	var o owner
	err = handle.Refresh(sending(ctx, &o), ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		l.held.drop(g)
		return g, fmt.Errorf("%w: %w", lock.ErrNotHeld, err)
	}
	if err != nil {
		return g, fmt.Errorf("redislock refresh: %w", o.classify(err))
	}
	g.ValidUntil = backends.Validity(o.sent, ttl)
	l.held.keep(g, handle)
	return g, nil
}

// Check asks for the remaining TTL, which is zero if the key is another user's or gone.
func (l *redisLockUser) Check(ctx context.Context, g lock.Grant) error {
	handle, err := l.held.handle(g)
	if err != nil {
		return err
	}
	left, err := handle.TTL(ctx)
	if err != nil {
		return fmt.Errorf("redislock ttl: %w", err)
	}
	if left == 0 {
		return notHeld(g)
	}
	return nil
}

// Close frees what the user may still hold.
func (l *redisLockUser) Close() error { return l.held.free(l.params.Timeout, l.Release) }
