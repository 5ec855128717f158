package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setPxIncr is set-px-lua with a counter beside the key, whose value after each grant is the fencing token.
//
// The two are one script, SET first: INCR runs only for who was granted, so that tokens have no gaps that attempts
// made. As two commands neither order would do. A holder stopped between SET and INCR until its key expired would draw its number after
// its successor did, the higher one, and the fence would let through the wrong one of the two; with INCR first, whoever
// stops between them is granted later with the lower number. The script leaves one weakness, which is why the token counts
// as home-made: the counter is a key like any other. A server that restarts without persistence begins again
// at 1, and a replica that is promoted before it heard of the last INCR hands out a number a second time.
func setPxIncr() backends.Lock {
	return backends.Lock{
		Name: "set-px-incr",
		Doc: "set-px-lua, with a counter beside the key (INCR in the same script) as a home-made fencing token, " +
			"which is no safer than the data of one Redis server.",
		Offers: backends.Offers{
			Try: true, Renewal: "call", Token: backends.TokenHomeMade, Reentrant: "no", Expires: true, WallClock: true,
		},
		Points:   []string{"before-set", "set-done", "wait-done", "before-delete", "release-done"},
		MinTTL:   10 * time.Millisecond,
		Recovery: recovery,
		Dial:     dialer(func(u user) lock.Locker { return setPxIncrUser{newRecipe(u)} }),
	}
}

var setIncr = redis.NewScript(`if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return redis.call("INCR", KEYS[2]) end return false`)

// counterKey is where the tokens of a lock come from. The braces are Redis Cluster's hash tag: what is in them decides about the slot, so the
// counter is kept where the key is.
func counterKey(name string) string { return "{" + key(name) + "}:token" }

func setPxIncrement(ctx context.Context, l link, r lock.Request, o *owner) (lock.Token, error) {
	n, err := setIncr.Run(ctx, l, []string{key(r.Lock), counterKey(r.Lock)}, o, r.TTL.Milliseconds()).Uint64()
	return lock.Token(n), err
}

type setPxIncrUser struct{ *recipe }

// Acquire polls until the key was free.
func (l setPxIncrUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt.
func (l setPxIncrUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.take(ctx, r, setPxIncrement)
}

// Release deletes the key if it still has this grant's value; the counter stays.
func (l setPxIncrUser) Release(ctx context.Context, g lock.Grant) error { return l.releaseOwn(ctx, g) }

// Renew sets the key's expiry anew if it still has this grant's value.
func (l setPxIncrUser) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	return l.extend(ctx, g, ttl)
}

// Close frees what the user may still hold.
func (l setPxIncrUser) Close() error { return l.free(l.params.Timeout, l.Release) }
