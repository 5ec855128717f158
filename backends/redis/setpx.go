package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setPxLua is the recipe of the Redis documentation for one server ("Distributed Locks with Redis", "Correct
// Implementation with a Single Instance").
func setPxLua() backends.Lock {
	return expiring(backends.Lock{
		Name:   "set-px-lua",
		Doc:    "SET NX PX with a random owner value; a script deletes or extends only one's own (redis.io, distributed locks).",
		Offers: backends.Offers{Renewal: "call"},
		Points: []string{"before-set", "set-done", "wait-done", "before-delete", "release-done"},
		Waits:  true,
		Dial:   dialRenewable(means{(*recipe).takePx, (*recipe).releaseOwn}),
	})
}

// link is what a grant is asked over: the pool, or one connection of it.
type link interface {
	redis.Scripter
	Process(ctx context.Context, cmd redis.Cmder) error
}

// takePx is the attempt of the recipes without tokens.
func (l *recipe) takePx(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.attempt(ctx, r, l.setPx(r))
}

// setPx sends SET with NX and PX.
func (l *recipe) setPx(r lock.Request) setter {
	return func(ctx context.Context, via link, o *owner) (lock.Token, error) {
		return lock.NoToken, via.Process(ctx, redis.NewStatusCmd(ctx, "SET", l.keys.key(r.Lock), o, "NX", "PX", r.TTL.Milliseconds()))
	}
}

// setter sends the request that takes a key for an owner and returns the token that came with it; redis.Nil says that the key was
// taken.
type setter func(ctx context.Context, via link, o *owner) (lock.Token, error)

// attempt asks for the key once. Where the scenario wants the grant on replicas (wait), it is in hand only when enough of them acknowledged.
func (l *recipe) attempt(ctx context.Context, r lock.Request, set setter) (lock.Grant, error) {
	return l.attemptAs(ctx, r, newOwner(), set)
}

// attemptAs asks in the name of an owner.
func (l *recipe) attemptAs(ctx context.Context, r lock.Request, o *owner, set setter) (lock.Grant, error) {
	via, done, err := l.link(ctx, r.Lock)
	if err != nil {
		return lock.Grant{}, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	defer done()
	lock.At(ctx, "before-set")
	token, err := set(ctx, via, o)
	if errors.Is(err, redis.Nil) {
		return lock.Grant{}, contended(r)
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("SET NX: %w", o.classify(err))
	}
	lock.At(ctx, "set-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: o.id, Token: token,
		Issued: o.sent, ValidUntil: backends.Validity(o.sent, r.TTL),
	}
	l.keep(g, struct{}{})
	if l.params.Wait > 0 {
		if err := l.replicated(ctx, via, g); err != nil {
			return lock.Grant{}, err
		}
		lock.At(ctx, "wait-done")
	}
	return g, nil
}

// link returns what the request for a lock goes over. WAIT counts the replicas that have what its own connection wrote, so it must
// use the one that SET used.
func (l *recipe) link(ctx context.Context, name string) (via link, done func(), err error) {
	if l.params.Wait == 0 {
		return l.client, func() {}, nil
	}
	var node *redis.Client
	switch c := l.client.(type) {
	case *redis.Client:
		node = c
	case *redis.ClusterClient:
		if node, err = c.MasterForKey(ctx, l.keys.key(name)); err != nil {
			return nil, nil, fmt.Errorf("primary of %s: %w", name, err)
		}
	default:
		return nil, nil, fmt.Errorf("wait does not work over a %T", c)
	}
	conn := node.Conn()
	return conn, func() { _ = conn.Close() }, nil
}

// replicated returns nil when enough replicas have acknowledged the grant. Else the grant is given back, and the error is certain
// only if that was: a key that may still be there blocks the lock until it expires.
func (l *recipe) replicated(ctx context.Context, via link, g lock.Grant) error {
	cmd := redis.NewIntCmd(ctx, "WAIT", l.params.Wait, l.params.WaitTimeout.Milliseconds())
	err := via.Process(ctx, cmd)
	if err == nil && cmd.Val() >= int64(l.params.Wait) {
		return nil
	}
	why := lock.Because(lock.Reason{Cause: lock.CauseNotReplicated, Seen: uint64(l.params.Wait)<<32 | uint64(cmd.Val()), N: int64(l.params.WaitTimeout)},
		fmt.Errorf("%d of %d replicas acknowledged the key of %s within %s", cmd.Val(), l.params.Wait, g.Lock, l.params.WaitTimeout))
	if err != nil {
		why = fmt.Errorf("WAIT: %w", err)
	}
	if err := l.deleteOwn(ctx, g); err != nil && !errors.Is(err, lock.ErrNotHeld) {
		return fmt.Errorf("%w, and nobody knows whether the key was deleted: %v", why, err) // the delete's certainty is not the acquire's
	}
	return fmt.Errorf("%w: %w", lock.ErrRefused, why)
}
