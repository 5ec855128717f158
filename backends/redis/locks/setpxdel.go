package locks

import "github.com/lockquake/lockquake/backends"

// setPxDel is set-px-lua without the check of the owner before the delete. It is wrong on purpose: a holder whose key
// expired deletes the next holder's key, and a third user gets in beside the second. The Redis documentation warns of
// it ("Correct Implementation with a Single Instance": "It is important to avoid removing a lock that was created by
// another client").
func setPxDel() backends.Lock {
	return expiring(backends.Lock{
		Name:  "set-px-del",
		Doc:   "SET NX PX, released by a plain DEL (the mistake that redis.io, distributed locks, warns against).",
		Wrong: "a release deletes the key of any owner: a holder that outlived its TTL frees the next holder's lock",
		Found: backends.FoundIn("late-release", "a double grant", "double_grants 0: found",
			"release-forged", "release-stale", "release-point",
		),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "wait-done", "before-delete", "release-done"},
		Waits:  true,
		Dial:   dialRecipe(means{takePx, releaseAny}),
	})
}
