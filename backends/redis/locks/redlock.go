package locks

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// redlock is the algorithm of redis.io, "Distributed Locks with Redis", as published. The key has the same random
// value on all servers. A majority must grant it within the TTL, counted from before the first request. A failed
// attempt is taken back on all servers, including those that did not answer, and repeated after a random delay. It
// differs in one thing: if it is unknown whether a majority granted an attempt, the acquire ends with an error of
// unknown outcome (see vote.refusal). The published client would go on asking.
func redlock() backends.Lock {
	return quorumLock(backends.Lock{
		Name: "redlock",
		Doc:  "The same key with the same random value on a majority of independent servers (redis.io, distributed locks).",
		Dial: dialRedlock(rules{checks: true}),
	})
}

// quorumLock sets what the locks on independent servers have in common.
func quorumLock(l backends.Lock) backends.Lock {
	l.Offers.Renewal = "call"
	if l.Points == nil {
		l.Points = []string{"before-set", "replies-in", "set-done", "before-delete", "release-done"}
	}
	return expiring(l)
}

// fiveConnection is one client process's connections to all servers.
type fiveConnection struct {
	access backends.Access
	params access.QuorumParams
	fleet  *fleet
	rules  rules
}

// rules are the differences between the locks.
type rules struct {
	checks bool // the elapsed time is checked
	counts bool // each server counts its grants
	all    bool // all servers are needed, not a majority
	errors bool // an error counts as a yes
	keeps  bool // an attempt with an error is not taken back
}

// needed returns how many servers must have set the key.
func (r rules) needed(v vote) int {
	if r.all {
		return len(v.answers)
	}
	return v.quorum()
}

// granted returns how many servers count as having set the key.
func (r rules) granted(v vote) int {
	if r.errors {
		return len(v.answers) - v.count(no)
	}
	return v.count(yes)
}

func dialRedlock(r rules) func(context.Context, backends.Access) (backends.Connection, error) {
	return func(_ context.Context, a backends.Access) (backends.Connection, error) {
		c, err := dialFive(a)
		if err != nil {
			return nil, err
		}
		c.rules = r
		return c, nil
	}
}

func dialFive(a backends.Access) (*fiveConnection, error) {
	p, err := access.DecodeQuorum(a)
	if err != nil {
		return nil, err
	}
	addresses := a.Addresses(access.Port)
	if len(addresses) < access.FewestServers {
		return nil, fmt.Errorf("redlock: %d addresses of port %q; %d are needed", len(addresses), access.Port,
			access.FewestServers)
	}
	return &fiveConnection{access: a, params: p, fleet: newFleet(addresses, a.Login, p)}, nil
}

// Locker returns a locker for one user. Values are random for each attempt, so users may share connections.
func (c *fiveConnection) Locker(_ context.Context, user int) (lock.Locker, error) {
	return &redlocker{
		fleet:  c.fleet,
		keys:   access.Keyspace(c.access.Prefix),
		params: c.params,
		rules:  c.rules,
		random: backends.Random(c.access.Run, user),
	}, nil
}

// Close closes the connections; keys that are still held expire.
func (c *fiveConnection) Close() error { return c.fleet.close() }

// redlocker is one user.
type redlocker struct {
	fleet  *fleet
	keys   access.Keyspace
	params access.QuorumParams
	rules  rules
	random *mathrand.Rand
	held   held[struct{}]
}

// Acquire tries until a majority grants the lock.
func (l *redlocker) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.params.Retry.Poll(ctx, l.random, func(ctx context.Context) (lock.Grant, error) {
		return l.TryAcquire(ctx, r)
	})
}

// TryAcquire makes one attempt on all servers. If the replies came too late it returns ErrContended: the attempt was
// given up, and the servers' grants have expired.
func (l *redlocker) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	id := newOwner().id
	lock.At(ctx, "before-set")
	start := time.Now()
	var token atomic.Uint64
	v := l.fleet.ask(ctx, id, func(ctx context.Context, c *redis.Client, o *owner) (bool, error) {
		n, err := l.set(ctx, c, o, r)
		for seen := token.Load(); n > seen && !token.CompareAndSwap(seen, n); {
			seen = token.Load()
		}
		return err == nil, err
	})
	if needed := l.rules.needed(v); l.rules.granted(v) < needed {
		l.takeBack(ctx, r.Lock, id, v)
		return lock.Grant{}, fmt.Errorf("SET NX: %w", v.refusal(needed))
	}
	lock.At(ctx, "replies-in")
	end := l.params.End(start, r.TTL)
	if late := l.params.Late(end); l.rules.checks && late >= 0 {
		l.takeBack(ctx, r.Lock, id, v)
		return lock.Grant{}, lock.Because(lock.Reason{Cause: lock.CauseTooLate, N: int64(late)},
			fmt.Errorf("%w: given up: the validity ended %s before the last reply", lock.ErrContended,
				late.Round(time.Millisecond)))
	}
	lock.At(ctx, "set-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: id, Token: lock.Token(token.Load()), Issued: start,
		ValidUntil: lock.Until(end),
		Reason:     v.grantedBy(),
	}
	l.held.keep(g, struct{}{})
	return g, nil
}

// set takes the key on one server, and returns the server's count of grants, or 0 if it does not count.
func (l *redlocker) set(ctx context.Context, c *redis.Client, o *owner, r lock.Request) (uint64, error) {
	key := l.keys.Key(r.Lock)
	if l.rules.counts {
		return setIncr.Run(ctx, c, []string{key, l.keys.Counter(r.Lock)}, o, r.TTL.Milliseconds()).Uint64()
	}
	return 0, c.Do(ctx, "SET", key, o, "NX", "PX", r.TTL.Milliseconds()).Err()
}

// takeBack deletes what a failed attempt may have left, on all servers. Its result does not matter: anything missed
// expires.
func (l *redlocker) takeBack(ctx context.Context, name, id string, v vote) {
	if l.rules.keeps && v.count(yes)+v.count(no) < len(v.answers) {
		return
	}
	l.holders(v.grantedBy()).ask(context.WithoutCancel(ctx), id, l.deleteFrom(name))
}

// holders returns the servers that are asked to delete a key: all of them, or those that granted it.
func (l *redlocker) holders(by lock.Reason) *fleet {
	if l.params.Release == access.ReleaseGranted {
		return l.fleet.only(by.Seen)
	}
	return l.fleet
}

// deleteFrom returns the request that deletes the key of a lock if it has the owner's value.
func (l *redlocker) deleteFrom(name string) request {
	return func(ctx context.Context, c *redis.Client, o *owner) (bool, error) {
		n, err := deleteOwn.Run(ctx, c, []string{l.keys.Key(name)}, o).Int()
		return n == 1, err
	}
}

// Release deletes the keys on all servers, or on those that granted them. It succeeds if a majority of those had the
// value, and returns ErrNotHeld if a majority did not.
func (l *redlocker) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	err := l.holders(g.Reason).ask(ctx, g.ID, l.deleteFrom(g.Lock)).own()
	if err == nil || errors.Is(err, lock.ErrNotHeld) {
		l.held.drop(g)
		lock.At(ctx, "release-done")
	}
	if err != nil {
		return fmt.Errorf("delete by script: %w", err)
	}
	return nil
}

// Renew sets the keys' expiry anew where they still have this grant's value. It succeeds if a majority did so before
// the new validity, counted from before the first request, was over.
func (l *redlocker) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	start := time.Now()
	err := l.fleet.ask(ctx, g.ID, func(ctx context.Context, c *redis.Client, o *owner) (bool, error) {
		n, err := extendOwn.Run(ctx, c, []string{l.keys.Key(g.Lock)}, o, ttl.Milliseconds()).Int()
		return n == 1, err
	}).own()
	if err != nil {
		if errors.Is(err, lock.ErrNotHeld) {
			l.held.drop(g)
		}
		return g, fmt.Errorf("extend by script: %w", err)
	}
	end := l.params.End(start, ttl)
	if late := time.Since(end); l.rules.checks && late >= 0 {
		return g, fmt.Errorf("extended, but the new validity ended %s before the last reply",
			late.Round(time.Millisecond))
	}
	g.ValidUntil = lock.Until(end)
	l.held.keep(g, struct{}{})
	return g, nil
}

// Check reads the keys: a grant is valid if a majority has its value.
func (l *redlocker) Check(ctx context.Context, g lock.Grant) error {
	v := l.fleet.ask(ctx, g.ID, func(ctx context.Context, c *redis.Client, o *owner) (bool, error) {
		o.sent = time.Now() // the owner's value is not sent
		value, err := c.Get(ctx, l.keys.Key(g.Lock)).Result()
		return value == o.id, err
	})
	if err := v.own(); err != nil {
		return fmt.Errorf("GET: %w", err)
	}
	return nil
}

// Close frees what the user may still hold; anything left expires.
func (l *redlocker) Close() error { return l.held.free(l.fleet.patience(), l.Release) }
