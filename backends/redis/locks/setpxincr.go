package locks

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setPxIncr is set-px-lua with a counter beside the key, whose value after each grant is the fencing token.
//
// The two are one script, SET first. INCR runs only for a user that was granted the lock, so failed attempts leave no
// gaps. Two commands would be wrong in either order:
//   - SET first: A is stopped before INCR until its key expires. B is granted the lock with number 1, then A
//     draws number 2. The fence lets A through and refuses B.
//   - INCR first: A draws number 1 and is stopped before SET. B draws number 2, is granted the lock and releases
//     it. Then A is granted it with the lower number.
//
// One weakness remains, which is why the token counts as home-made: the counter is a key like any other. A server
// that restarts without persistence begins again at 1. A replica that is promoted before it received the last INCR
// gives out a number twice.
func setPxIncr() backends.Lock {
	return expiring(backends.Lock{
		Name: "set-px-incr",
		Doc: "set-px-lua with a counter next to the key (INCR in the same script) as a home-made fencing token, " +
			"which is no safer than the data of one Redis server.",
		Offers: backends.Offers{Renewal: "call", Token: backends.TokenHomeMade},
		Points: []string{"before-set", "set-done", "wait-done", "before-delete", "release-done"},
		Waits:  true,
		Dial:   dialRenewable(means{takePxIncr, releaseOwn}),
	})
}

var setIncr = redis.NewScript(`if redis.call("SET", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return redis.call("INCR", KEYS[2]) end return false`)

func takePxIncr(ctx context.Context, l *recipe, r lock.Request) (lock.Grant, error) {
	return l.attempt(ctx, r, func(ctx context.Context, via link, o *owner) (lock.Token, error) {
		n, err := setIncr.Run(ctx, via, []string{l.keys.Key(r.Lock), l.keys.Counter(r.Lock)}, o,
			r.TTL.Milliseconds()).Uint64()
		return lock.Token(n), err
	})
}
