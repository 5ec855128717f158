package locks

import "github.com/lockquake/lockquake/backends"

// redlockNoElapsedCheck is redlock without its third step: it does not check the clock after the last reply. So it
// may return a grant that a majority made long ago and may have dropped since. The grant's validity is honest: it
// counts from before the first request, and is over by then. So the lock shows an overlapping hold by a user who was
// never entitled. (Kleppmann, "How to do distributed locking", 2016, and the answer of Sanfilippo (antirez), "Is
// Redlock safe?".)
func redlockNoElapsedCheck() backends.Lock {
	return quorumLock(backends.Lock{
		Name:  "redlock-no-elapsed-check",
		Doc:   "redlock without the check of the clock after the last reply, to show its value.",
		Wrong: "returns a grant whose validity ended before the replies were read",
		Found: backends.FoundIn("late-replies", "an overlapping hold", "overlapping_holds 0: found"),
		Dial:  dialRedlock(rules{}),
	})
}

// redlockUnanimous is redlock that wants the key on every server. It is wrong on purpose: with one server down nobody
// is granted a lock, which is what several servers are there to prevent.
func redlockUnanimous() backends.Lock {
	return quorumLock(backends.Lock{
		Name:  "redlock-unanimous",
		Doc:   "redlock that needs the grant of all servers.",
		Wrong: "one failed server blocks all users",
		Found: backends.Found{Stories: []backends.Finding{
			{Story: "hang-one", Shows: "a minority denial", Reasons: []string{"minority_denials 0: found"}},
			{Story: "refuse", Shows: "a minority denial", Reasons: []string{"minority_denials 0: found"}},
		}},
		Dial: dialRedlock(rules{checks: true, all: true}),
	})
}
