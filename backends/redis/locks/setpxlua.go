package locks

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setPxLua is the recipe of the Redis documentation for one server ("Distributed Locks with Redis", "Correct
// Implementation with a Single Instance").
func setPxLua() backends.Lock {
	return expiring(backends.Lock{
		Name:   "set-px-lua",
		Doc:    "SET NX PX with a random owner value; a script deletes or extends only its own key (redis.io, distributed locks).",
		Offers: backends.Offers{Renewal: "call"},
		Points: []string{"before-set", "set-done", "wait-done", "before-delete", "release-done"},
		Waits:  true,
		Dial:   dialRenewable(means{takePx, releaseOwn}),
	})
}

// takePx is the attempt of the recipes without tokens.
func takePx(ctx context.Context, l *recipe, r lock.Request) (lock.Grant, error) {
	return l.attempt(ctx, r, setPx(l, r))
}

// setPx sends SET with NX and PX.
func setPx(l *recipe, r lock.Request) setter {
	return func(ctx context.Context, via link, o *owner) (lock.Token, error) {
		return lock.NoToken, via.Process(ctx, redis.NewStatusCmd(ctx, "SET", l.keys.Key(r.Lock), o, "NX", "PX",
			r.TTL.Milliseconds()))
	}
}
