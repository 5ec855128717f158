package locks

import "github.com/lockquake/lockquake/backends"

// redlockIncr is redlock with a counter beside the key on each server, as set-px-incr has it on one. It uses the same
// script, and the highest count of the servers that said yes is the fencing token. Kleppmann ("How to do distributed
// locking", 2016) on exactly that: "keeping counters on several nodes would mean they would go out of sync". That
// happens without any fault, because an attempt that reaches a minority increments only those servers' counters.
// Example: the counters of three servers are 5, 1 and 1. A is granted the lock by the first and the second, with
// number 6. B is granted it by the second and the third, with number 3.
func redlockIncr() backends.Lock {
	return quorumLock(backends.Lock{
		Name: "redlock-incr",
		Doc: "redlock with a counter next to each key (INCR in the same script). The highest counter is a home-made " +
			"fencing token, which falls when the next majority has counted less.",
		Wrong:  "each server counts separately, and a failed attempt raises the counters of a minority: a later grant has a lower token",
		Found:  backends.FoundIn("contention", "a token regression", "token_regressions 0: found"),
		Offers: backends.Offers{Token: backends.TokenHomeMade},
		Dial:   dialRedlock(rules{checks: true, counts: true}),
	})
}
