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

// redlockCountsErrors is redlock whose client counts calls and refusals, and forgets errors. It is wrong on purpose:
// while a majority of the servers fails, every user is granted the lock.
func redlockCountsErrors() backends.Lock {
	return quorumLock(backends.Lock{
		Name:  "redlock-counts-errors",
		Doc:   "redlock that counts each server as a vote that did not answer no.",
		Wrong: "it grants the lock to several users while a majority of the servers cannot be reached",
		Found: withoutQuorum("a double grant", "double_grants 0: found", "errors-acquire", "errors-refused"),
		Dial:  dialRedlock(rules{checks: true, errors: true}),
	})
}

// redlockKeepsVotes is redlock whose attempt returns the error of a server at once, and leaves its keys on the others.
// It is wrong on purpose.
func redlockKeepsVotes() backends.Lock {
	return quorumLock(backends.Lock{
		Name:  "redlock-keeps-votes",
		Doc:   "redlock that takes an attempt back only if all servers answered yes or no.",
		Wrong: "a failed acquire leaves keys on the servers that granted it, which keep others out for a TTL",
		Found: withoutQuorum("an orphan", "orphans 0: found"),
		Dial:  dialRedlock(rules{checks: true, keeps: true}),
	})
}

// withoutQuorum returns the Found of a mistake that shows while a majority of the servers refuses or is silent.
func withoutQuorum(shows, reason string, checks ...string) backends.Found {
	return backends.Found{Checks: checks, Stories: []backends.Finding{
		{Story: "no-quorum", Shows: shows, Reasons: []string{reason}},
		{Story: "silent-quorum", Shows: shows, Reasons: []string{reason}},
	}}
}
