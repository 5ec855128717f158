package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// redSync is the library go-redsync on one pool: with one server its quorum is that server. Each attempt is one
// TryLock. The loop of Lock (32 tries, 50 to 250 ms apart) would hide the results of all attempts but the last, so
// the adapter retries by the scenario's policy. A command may take the scenario's timeout. The library's 5 % of the
// TTL is meant for several servers asked at once. The adapter adds the send time of the request that granted, with a
// hook of the client; the library's Until is not used.
func redSync() backends.Lock {
	return expiring(backends.Lock{
		Name:    "redsync",
		Doc:     "The library github.com/go-redsync/redsync v4.18 on one pool: SET NX PX, scripts to extend and delete only its own key.",
		Modules: []string{access.GoRedis, "github.com/go-redsync/redsync/v4"},
		Offers:  backends.Offers{Renewal: "call"},
		Points:  []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		Dial: dialer(func(u user) lock.Locker {
			return &redSyncUser{user: u, library: redsync.New(goredis.NewPool(u.client))}
		}),
	})
}

type redSyncUser struct {
	user
	library *redsync.Redsync
	held    held[*redsync.Mutex]
}

// mutex returns a handle. value is that of a grant, or "" for a new request.
func (l *redSyncUser) mutex(name string, ttl time.Duration, value string) *redsync.Mutex {
	return l.library.NewMutex(l.keys.Key(name), redsync.WithExpiry(ttl), redsync.WithValue(value),
		redsync.WithTimeoutFactor(float64(l.params.Timeout)/float64(ttl)))
}

// Acquire polls until the lock is free.
func (l *redSyncUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt. The library deletes what a failed one may have left, and does not say whether that
// worked.
func (l *redSyncUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	m := l.mutex(r.Lock, r.TTL, "")
	lock.At(ctx, "before-lock")
	var o owner
	if err := m.TryLockContext(sending(ctx, &o)); err != nil {
		return lock.Grant{}, fmt.Errorf("redsync lock: %w", unlessTaken(&o, err, lock.ErrContended))
	}
	lock.At(ctx, "lock-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: m.Value(), Token: lock.NoToken,
		Issued: o.sent, ValidUntil: backends.Validity(o.sent, r.TTL),
	}
	l.held.keep(g, m)
	return g, nil
}

// unlessTaken classifies an error of the library. The library calls a key with another value, or none, "taken",
// whatever the request was; taken is the error for that.
func unlessTaken(o *owner, err, taken error) error {
	var other *redsync.ErrTaken
	if errors.As(err, &other) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return fmt.Errorf("%w: %w", taken, err)
	}
	return o.classify(err)
}

// Release runs the library's script, which deletes only the user's own key.
func (l *redSyncUser) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-unlock")
	m, err := l.held.handle(g)
	if err != nil {
		return err
	}
	var o owner
	if _, err = m.UnlockContext(sending(ctx, &o)); err != nil {
		err = fmt.Errorf("redsync unlock: %w", unlessTaken(&o, err, lock.ErrNotHeld))
	}
	if err == nil || errors.Is(err, lock.ErrNotHeld) {
		l.held.drop(g)
		lock.At(ctx, "unlock-done")
	}
	return err
}

// Renew runs the library's script. Its Extend has one expiry per handle, so a new handle takes over the value.
func (l *redSyncUser) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	if _, err := l.held.handle(g); err != nil {
		return g, err
	}
	m := l.mutex(g.Lock, ttl, g.ID)
	var o owner
	if _, err := m.ExtendContext(sending(ctx, &o)); err != nil {
		err = unlessTaken(&o, err, lock.ErrNotHeld)
		if errors.Is(err, lock.ErrNotHeld) {
			l.held.drop(g)
		}
		return g, fmt.Errorf("redsync extend: %w", err)
	}
	g.ValidUntil = backends.Validity(o.sent, ttl)
	l.held.keep(g, m)
	return g, nil
}

// Check reads the key.
func (l *redSyncUser) Check(ctx context.Context, g lock.Grant) error {
	m, err := l.held.handle(g)
	if err != nil {
		return err
	}
	if _, err := m.ValidContext(ctx); err != nil { //nolint:staticcheck // Until, which shall take its place, asks no server
		return fmt.Errorf("redsync valid: %w", unlessTaken(&owner{}, err, lock.ErrNotHeld))
	}
	return nil
}

// Close frees what the user may still hold.
func (l *redSyncUser) Close() error { return l.held.free(l.params.Timeout, l.Release) }
