package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// recovery is within what time a dead holder's key is gone: Redis checks the expiry of a key whenever somebody asks
// for it.
func recovery(ttl time.Duration) time.Duration { return ttl + time.Second }

// connection is one client process's pool of connections to the service, which all of its users share: owner values are random for
// each grant.
type connection struct {
	access backends.Access
	params LockParams
	client redis.UniversalClient
	locker func(user) lock.Locker
}

// dialer returns the Dial of a lock whose users are made by locker.
func dialer(locker func(user) lock.Locker) func(context.Context, backends.Access) (backends.Connection, error) {
	return func(_ context.Context, a backends.Access) (backends.Connection, error) {
		p, err := lockParams(a.Params)
		if err != nil {
			return nil, err
		}
		client, err := connect(a, p)
		if err != nil {
			return nil, err
		}
		client.AddHook(sendHook{})
		return &connection{access: a, params: p, client: client, locker: locker}, nil
	}
}

// Locker returns a locker for one user.
func (c *connection) Locker(_ context.Context, number int) (lock.Locker, error) {
	return c.locker(user{
		client: c.client, keys: keyspace(c.access.Prefix), params: c.params, random: backends.Random(c.access.Run, number), process: c.access.Client,
	}), nil
}

// Close closes the connections; keys that are still held expire, if they do.
func (c *connection) Close() error { return c.client.Close() }

// user is what every lock knows of the one that it serves.
type user struct {
	client  redis.UniversalClient
	keys    keyspace
	params  LockParams
	random  *mathrand.Rand
	process int // the number of the client process
}

// poll asks until the lock was free.
func (u user) poll(ctx context.Context, r lock.Request, try func(context.Context, lock.Request) (lock.Grant, error)) (lock.Grant, error) {
	return u.params.Retry.Poll(ctx, u.random, func(ctx context.Context) (lock.Grant, error) { return try(ctx, r) })
}

// The scripts act only where the key still has the owner's value.
const (
	deleteOwnText = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`
	extendOwnText = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2]) end return 0`
)

var deleteOwn, extendOwn = redis.NewScript(deleteOwnText), redis.NewScript(extendOwnText)

// recipe is one user of a lock that is a value at a key, by commands of this package. The locks say how it is taken and given back.
type recipe struct {
	user
	held[struct{}]
	how means
}

// means are how a recipe's key is taken, in one attempt, and given back.
type means struct {
	take func(*recipe, context.Context, lock.Request) (lock.Grant, error)
	give func(*recipe, context.Context, lock.Grant) error
}

// Acquire polls until the key was free.
func (l *recipe) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt.
func (l *recipe) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.how.take(l, ctx, r)
}

// Release gives the key back.
func (l *recipe) Release(ctx context.Context, g lock.Grant) error { return l.how.give(l, ctx, g) }

// Close frees what the user may still hold.
func (l *recipe) Close() error { return l.free(l.params.Timeout, l.Release) }

// dialRecipe returns the Dial of a recipe that cannot be renewed.
func dialRecipe(how means) func(context.Context, backends.Access) (backends.Connection, error) {
	return dialer(func(u user) lock.Locker { return &recipe{user: u, how: how} })
}

// dialRenewable returns the Dial of a recipe that can.
func dialRenewable(how means) func(context.Context, backends.Access) (backends.Connection, error) {
	return dialer(func(u user) lock.Locker { return renewable{&recipe{user: u, how: how}} })
}

// renewable is a recipe whose key has an expiry that can be set anew.
type renewable struct{ *recipe }

// newOwner draws the value of one grant.
func newOwner() *owner {
	var random [ownerSize / 2]byte
	_, _ = rand.Read(random[:]) // never fails: the runtime ends the program instead
	o := &owner{}
	hex.Encode(o.text[:], random[:])
	o.id = string(o.text[:])
	return o
}

// contended is the error of an attempt that found the key.
func contended(r lock.Request) error {
	return fmt.Errorf("%w: NX found the key of %s", lock.ErrContended, r.Lock)
}

// notHeld is the error of an operation on a key that has another value or none.
func notHeld(g lock.Grant) error {
	return fmt.Errorf("%w: the key of %s has another value or none", lock.ErrNotHeld, g.Lock)
}

// releaseOwn deletes the key if it still has this grant's value.
func (l *recipe) releaseOwn(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	if err := l.deleteOwn(ctx, g); err != nil {
		return err
	}
	lock.At(ctx, "release-done")
	return nil
}

func (l *recipe) deleteOwn(ctx context.Context, g lock.Grant) error {
	o := &owner{id: g.ID}
	n, err := deleteOwn.Run(ctx, l.client, []string{l.keys.key(g.Lock)}, o).Int()
	if err != nil {
		return fmt.Errorf("delete by script: %w", o.classify(err))
	}
	l.drop(g)
	if n == 0 {
		return notHeld(g)
	}
	return nil
}

// releaseAny deletes the key, whosever it is.
func (l *recipe) releaseAny(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	return l.deleteKey(ctx, g)
}

func (l *recipe) deleteKey(ctx context.Context, g lock.Grant) error {
	var o owner
	n, err := l.client.Del(sending(ctx, &o), l.keys.key(g.Lock)).Result()
	if err != nil {
		return fmt.Errorf("DEL: %w", o.classify(err))
	}
	l.drop(g)
	lock.At(ctx, "release-done")
	if n == 0 {
		return notHeld(g)
	}
	return nil
}

// Renew sets the key's expiry anew if it still has this grant's value.
func (l renewable) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	o := &owner{id: g.ID}
	n, err := extendOwn.Run(ctx, l.client, []string{l.keys.key(g.Lock)}, o, ttl.Milliseconds()).Int()
	if err != nil {
		return g, fmt.Errorf("extend by script: %w", o.classify(err))
	}
	if n == 0 {
		l.drop(g)
		return g, notHeld(g)
	}
	g.ValidUntil = backends.Validity(o.sent, ttl)
	l.keep(g, struct{}{})
	return g, nil
}

// Check reads the key.
func (l *recipe) Check(ctx context.Context, g lock.Grant) error {
	v, err := l.client.Get(ctx, l.keys.key(g.Lock)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("GET: %w", err)
	}
	if err != nil || v != g.ID {
		return notHeld(g)
	}
	return nil
}

// keyspace is where locks are kept: below a prefix, or "" for the package's own names. All keys of one lock are in one slot of Redis
// Cluster, which is that of what stands in braces.
type keyspace string

// own is what the package's own keys begin with.
const own = "lockquake"

// key is where most locks are kept.
func (k keyspace) key(name string) string {
	if k == "" {
		return own + ":" + name
	}
	return string(k) + k.slot(name)
}

// slot is the part of a lock's keys that decides about their slot.
func (k keyspace) slot(name string) string {
	if k == "" {
		return "{" + k.key(name) + "}"
	}
	return "{" + name + "}"
}

// counter is where the tokens of a lock come from.
func (k keyspace) counter(name string) string { return string(k) + k.slot(name) + ":token" }

// rueidisPrefix begins the keys of rueidislock, which is told the slot as the lock's name.
func (k keyspace) rueidisPrefix() string {
	if k == "" {
		return own
	}
	return string(k)
}

// keys lists where a lock may be kept: by most locks, and by rueidislock, which adds the number of the key (there is one, 0).
func (k keyspace) keys(name string) []string {
	return []string{k.key(name), k.rueidisPrefix() + ":0:" + k.slot(name)}
}

// anywhere lists the keys, and where a client of others keeps a lock whose key is its name, or has rueidislock's own prefix. Those are in
// other slots of a cluster.
func (k keyspace) anywhere(name string) []string {
	if k == "" {
		return append(k.keys(name), name, "rueidislock:0:"+name)
	}
	return k.keys(name) // on an attached service the rest is other people's
}

// ready is written by Ready; no lock has a name like it.
func (k keyspace) ready() string {
	if k == "" {
		return own + ":ready"
	}
	return string(k) + "ready"
}

// readyKeys is how many keys are tried until every primary of a cluster has taken a write at one of its own.
const readyKeys = 1000

// readyAt is the key that is tried as that number.
func (k keyspace) readyAt(n int) string { return k.ready() + strconv.Itoa(n) }

// allReady lists what Ready may have written.
func (k keyspace) allReady() []string {
	out := []string{k.ready()}
	for n := range readyKeys {
		out = append(out, k.readyAt(n))
	}
	return out
}

// probe is a key in the slot of a lock's.
func (k keyspace) probe(name string) string {
	if k == "" {
		return own + ":probe:" + k.slot(name)
	}
	return string(k) + "probe:" + k.slot(name)
}
