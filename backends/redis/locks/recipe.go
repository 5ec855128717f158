package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// The scripts act only if the key still has the owner's value.
const (
	deleteOwnText = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`
	extendOwnText = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) end return 0`
)

var deleteOwn, extendOwn = redis.NewScript(deleteOwnText), redis.NewScript(extendOwnText)

// recipe is one user of a lock that is a value at a key, with this package's own commands. The locks supply how it is
// taken and given back.
type recipe struct {
	user
	held held[struct{}]
	how  means
}

// means are how a recipe takes its key, in one attempt, and gives it back.
type means struct {
	take func(context.Context, *recipe, lock.Request) (lock.Grant, error)
	give func(context.Context, *recipe, lock.Grant) error
}

// Acquire polls until the key is free.
func (l *recipe) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt.
func (l *recipe) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.how.take(ctx, l, r)
}

// Release gives the key back.
func (l *recipe) Release(ctx context.Context, g lock.Grant) error { return l.how.give(ctx, l, g) }

// Close frees what the user may still hold.
func (l *recipe) Close() error { return l.held.free(l.params.Timeout, l.Release) }

// dialRecipe returns the Dial of a recipe that cannot be renewed.
func dialRecipe(how means) func(context.Context, backends.Access) (backends.Connection, error) {
	return dialer(func(u user) lock.Locker { return &recipe{user: u, how: how} })
}

// dialRenewable returns the Dial of a recipe that can.
func dialRenewable(how means) func(context.Context, backends.Access) (backends.Connection, error) {
	return dialer(func(u user) lock.Locker { return renewable{&recipe{user: u, how: how}} })
}

// renewable is a recipe whose key has an expiry that can be renewed.
type renewable struct{ *recipe }

// contended returns the error of an attempt that found the key.
func contended(r lock.Request) error {
	return fmt.Errorf("%w: NX found the key of %s", lock.ErrContended, r.Lock)
}

// notHeld returns the error of an operation on a key with another value or none.
func notHeld(g lock.Grant) error {
	return fmt.Errorf("%w: the key of %s has another value or none", lock.ErrNotHeld, g.Lock)
}

// releaseOwn deletes the key if it still has this grant's value.
func releaseOwn(ctx context.Context, l *recipe, g lock.Grant) error {
	return l.releaseBy(ctx, g, deleteOwn)
}

func (l *recipe) releaseBy(ctx context.Context, g lock.Grant, script *redis.Script) error {
	lock.At(ctx, "before-delete")
	if err := l.delete(ctx, g, script); err != nil {
		return err
	}
	lock.At(ctx, "release-done")
	return nil
}

// delete runs the script that deletes the key of a grant.
func (l *recipe) delete(ctx context.Context, g lock.Grant, script *redis.Script) error {
	o := &owner{id: g.ID}
	n, err := script.Run(ctx, l.client, []string{l.keys.Key(g.Lock)}, o).Int()
	if err != nil {
		return fmt.Errorf("delete by script: %w", o.classify(err))
	}
	l.held.drop(g)
	if n == 0 {
		return notHeld(g)
	}
	return nil
}

// releaseAny deletes the key without checking its owner.
func releaseAny(ctx context.Context, l *recipe, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	return l.deleteKey(ctx, g)
}

func (l *recipe) deleteKey(ctx context.Context, g lock.Grant) error {
	var o owner
	n, err := l.client.Del(sending(ctx, &o), l.keys.Key(g.Lock)).Result()
	if err != nil {
		return fmt.Errorf("DEL: %w", o.classify(err))
	}
	l.held.drop(g)
	lock.At(ctx, "release-done")
	if n == 0 {
		return notHeld(g)
	}
	return nil
}

// Renew sets a new expiry if the key still has this grant's value.
func (l renewable) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	return l.renewOver(ctx, l.client, g, ttl)
}

func (l renewable) renewOver(ctx context.Context, via redis.Scripter, g lock.Grant,
	ttl time.Duration,
) (lock.Grant, error) {
	o := &owner{id: g.ID}
	n, err := extendOwn.Run(ctx, via, []string{l.keys.Key(g.Lock)}, o, ttl.Milliseconds()).Int()
	if err != nil {
		return g, fmt.Errorf("extend by script: %w", o.classify(err))
	}
	if n == 0 {
		l.held.drop(g)
		return g, notHeld(g)
	}
	g.ValidUntil = backends.Validity(o.sent, ttl)
	l.held.keep(g, struct{}{})
	return g, nil
}

// Check reads the key.
func (l *recipe) Check(ctx context.Context, g lock.Grant) error {
	v, err := l.client.Get(ctx, l.keys.Key(g.Lock)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("GET: %w", err)
	}
	if err != nil || v != g.ID {
		return notHeld(g)
	}
	return nil
}

// setter sends the request that takes a key for an owner, and returns the token that came with it. redis.Nil means
// that the key existed.
type setter func(ctx context.Context, via link, o *owner) (lock.Token, error)

// attempt asks for the key once. If the scenario requires replicas (wait), the grant counts only once enough of them
// acknowledged it.
func (l *recipe) attempt(ctx context.Context, r lock.Request, set setter) (lock.Grant, error) {
	return l.attemptAs(ctx, r, newOwner(), set)
}

// attemptAs asks for the key with the owner's value.
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
	l.held.keep(g, struct{}{})
	if l.params.Wait > 0 {
		if err := l.replicated(ctx, via, g); err != nil {
			return lock.Grant{}, err
		}
		lock.At(ctx, "wait-done")
	}
	return g, nil
}

// around returns the means of set-px-lua with something done around each of its calls for a lock.
func around(call func(ctx context.Context, l *recipe, name string, do func(context.Context) error) error) means {
	return means{
		take: func(ctx context.Context, l *recipe, r lock.Request) (g lock.Grant, err error) {
			err = call(ctx, l, r.Lock, func(ctx context.Context) error {
				g, err = takePx(ctx, l, r)
				return err
			})
			return g, err
		},
		give: func(ctx context.Context, l *recipe, g lock.Grant) error {
			return call(ctx, l, g.Lock, func(ctx context.Context) error { return releaseOwn(ctx, l, g) })
		},
	}
}
