package redis

import (
	"time"

	"github.com/lockquake/lockquake/backends"
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
		Waits:    true,
		MinTTL:   10 * time.Millisecond,
		Recovery: recovery,
		Dial:     dialRenewable(means{(*recipe).takePx, (*recipe).releaseOwn}),
	}
}
