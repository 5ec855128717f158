package locks

import "github.com/lockquake/lockquake/backends"

// redlockIncr is redlock with a counter beside the key on each server, as set-px-incr has it on one: the same script,
// and the highest number of those that said yes is the fencing token. Kleppmann ("How to do distributed locking", 2016)
// on just that: "keeping counters on several nodes would mean they would go out of sync". They do so without any fault.
// An attempt that reaches a minority drives up the counters of those servers alone. Example: the servers of three count
// 5, 1 and 1. A gets the first and the second, and the number 6. B gets the second and the third, and the number 3.
func redlockIncr() backends.Lock {
	return quorumLock(backends.Lock{
		Name: "redlock-incr",
		Doc: "redlock, with a counter beside each key (INCR in the same script), the highest of which is a home-made fencing token: " +
			"which falls when the next majority has counted less.",
		Wrong:  "each server counts on its own, and an attempt that fails drives up the counters of a minority: a later grant has a lower token",
		Found:  backends.FoundIn("contention", "a token regression", "token_regressions 0: found"),
		Offers: backends.Offers{Token: backends.TokenHomeMade},
		Dial:   dialRedlock(rules{checks: true, counts: true}),
	})
}
