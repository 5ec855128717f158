package redis

import "github.com/lockquake/lockquake/backends"

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
