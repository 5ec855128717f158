package locks

import "github.com/lockquake/lockquake/backends"

// redlockNoElapsedCheck is redlock without its third step: it does not look at the clock after the last reply. So it
// may hand out a grant that a majority made long ago and may have dropped since. The grant tells its validity
// honestly, counted from before the first request, and is over by then. So it shows an overlapping hold, by a user
// who never had a right to it. (Kleppmann, "How to do distributed locking", 2016, and the answer of Sanfilippo
// (antirez), "Is Redlock safe?".)
func redlockNoElapsedCheck() backends.Lock {
	return quorumLock(backends.Lock{
		Name:  "redlock-no-elapsed-check",
		Doc:   "redlock without the look at the clock after the last reply, for what that is worth.",
		Wrong: "hands out a grant whose validity was over before the replies were read",
		Found: backends.FoundIn("late-replies", "an overlapping hold", "overlapping_holds 0: found"),
		Dial:  dialRedlock(rules{}),
	})
}
