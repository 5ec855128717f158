package redis

import (
	"context"
	"time"

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
			Try: true, Renewal: "call", Token: backends.TokenNone, Reentrant: "no", Expires: true, WallClock: true,
		},
		Points:   []string{"before-set", "set-done", "wait-done", "before-delete", "release-done"},
		MinTTL:   10 * time.Millisecond,
		Recovery: recovery,
		Dial:     dialer(func(u user) lock.Locker { return setPxLuaUser{newRecipe(u)} }),
	}
}

type setPxLuaUser struct{ *recipe }

// Acquire polls until the key was free.
func (l setPxLuaUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt.
func (l setPxLuaUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.take(ctx, r, setPx)
}

// Release deletes the key if it still has this grant's value.
func (l setPxLuaUser) Release(ctx context.Context, g lock.Grant) error { return l.releaseOwn(ctx, g) }

// Renew sets the key's expiry anew if it still has this grant's value.
func (l setPxLuaUser) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	return l.extend(ctx, g, ttl)
}

// Close frees what the user may still hold.
func (l setPxLuaUser) Close() error { return l.free(l.params.Timeout, l.Release) }
