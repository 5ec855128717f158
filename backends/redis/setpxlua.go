package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setPxLua is the recipe of the Redis documentation for one server ("Distributed Locks with Redis", "Correct
// Implementation with a Single Instance").
func setPxLua() backends.Lock {
	return backends.Lock{
		Name: "set-px-lua",
		Doc:  "SET NX PX with a random owner value; a script deletes or extends only one's own (redis.io, distributed locks).",
		Offers: backends.Offers{
			Try: true, Renewal: "call", Token: backends.TokenNone, Reentrant: "no", Expires: true,
		},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		MinTTL: 10 * time.Millisecond,
		Recovery: func(ttl time.Duration) time.Duration {
			return ttl + time.Second
		},
		Dial: dial,
	}
}

// The scripts act only where the key still has the owner's value.
var (
	deleteOwn = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)
	extendOwn = redis.NewScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) end return 0`)
)

// key is where a lock is kept.
func key(name string) string { return "lockquake:" + name }

// connection is one client process's pool of connections to the service.
type connection struct {
	access backends.Access
	params LockParams
	client redis.UniversalClient
}

func dial(_ context.Context, a backends.Access) (backends.Connection, error) {
	p, err := lockParams(a.Params)
	if err != nil {
		return nil, err
	}
	client, err := connect(a, p)
	if err != nil {
		return nil, err
	}
	return &connection{access: a, params: p, client: client}, nil
}

// Locker returns a locker for one user. Owner values are random for each grant, so users may share connections.
func (c *connection) Locker(_ context.Context, user int) (lock.Locker, error) {
	return &locker{
		client: c.client,
		params: c.params,
		random: backends.Random(c.access.Run, user),
		held:   map[string]lock.Grant{},
	}, nil
}

// Close closes the connections; keys that are still held expire.
func (c *connection) Close() error { return c.client.Close() }

// locker is one user.
type locker struct {
	client redis.UniversalClient
	params LockParams
	random *mathrand.Rand

	mu   sync.Mutex
	held map[string]lock.Grant // by id: what Close must free
}

// Acquire polls until the key was free.
func (l *locker) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.params.Retry.Poll(ctx, l.random, func(ctx context.Context) (lock.Grant, error) {
		return l.TryAcquire(ctx, r)
	})
}

// TryAcquire makes one attempt.
func (l *locker) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	var random [20]byte
	_, _ = rand.Read(random[:]) // never fails: the runtime ends the program instead
	o := &owner{id: hex.EncodeToString(random[:])}

	lock.At(ctx, "before-set")
	err := l.client.Do(ctx, "SET", key(r.Lock), o, "NX", "PX", r.TTL.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) {
		return lock.Grant{}, fmt.Errorf("%w: SET NX found the key of %s", lock.ErrContended, r.Lock)
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("SET NX: %w", o.classify(err))
	}
	lock.At(ctx, "set-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: o.id, Token: lock.NoToken,
		Issued: o.sent, ValidUntil: backends.Validity(o.sent, r.TTL),
	}
	l.remember(g)
	return g, nil
}

// Release deletes the key if it still has this grant's value.
func (l *locker) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	o := &owner{id: g.ID}
	n, err := deleteOwn.Run(ctx, l.client, []string{key(g.Lock)}, o).Int()
	if err != nil {
		return fmt.Errorf("delete by script: %w", o.classify(err))
	}
	l.forget(g)
	lock.At(ctx, "release-done")
	if n == 0 {
		return fmt.Errorf("%w: the key of %s has another value or none", lock.ErrNotHeld, g.Lock)
	}
	return nil
}

// Renew sets the key's expiry anew if it still has this grant's value.
func (l *locker) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	o := &owner{id: g.ID}
	n, err := extendOwn.Run(ctx, l.client, []string{key(g.Lock)}, o, ttl.Milliseconds()).Int()
	if err != nil {
		return g, fmt.Errorf("extend by script: %w", o.classify(err))
	}
	if n == 0 {
		l.forget(g)
		return g, fmt.Errorf("%w: the key of %s has another value or none", lock.ErrNotHeld, g.Lock)
	}
	g.ValidUntil = backends.Validity(o.sent, ttl)
	l.remember(g)
	return g, nil
}

// Check reads the key.
func (l *locker) Check(ctx context.Context, g lock.Grant) error {
	v, err := l.client.Get(ctx, key(g.Lock)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("GET: %w", err)
	}
	if err != nil || v != g.ID {
		return fmt.Errorf("%w: the key of %s has another value or none", lock.ErrNotHeld, g.Lock)
	}
	return nil
}

// Close frees what the user may still hold, within one command's timeout; what is left expires.
func (l *locker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), l.params.Timeout)
	defer cancel()
	var errs []error
	for _, g := range l.left() {
		if err := l.Release(ctx, g); err != nil && !errors.Is(err, lock.ErrNotHeld) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// left returns the grants that were neither released nor are over.
func (l *locker) left() []lock.Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []lock.Grant
	for _, g := range l.held {
		if g.ValidUntil.Covers(time.Now()) {
			out = append(out, g)
		}
	}
	return out
}

func (l *locker) remember(g lock.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[g.ID] = g
}

func (l *locker) forget(g lock.Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, g.ID)
}
