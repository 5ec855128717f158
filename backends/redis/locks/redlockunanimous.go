package locks

import "github.com/lockquake/lockquake/backends"

// redlockUnanimous is redlock that requires the key on every server. It is wrong on purpose: with one server down no
// lock is granted, which is what several servers should prevent.
func redlockUnanimous() backends.Lock {
	return quorumLock(backends.Lock{
		Name:  "redlock-unanimous",
		Doc:   "redlock that is granted by all servers, and by no fewer.",
		Wrong: "one server that is down keeps everybody out",
		Found: backends.Found{Stories: []backends.Finding{
			{Story: "hang-one", Shows: "a minority denial", Reasons: []string{"minority_denials 0: found"}},
			{Story: "refuse", Shows: "a minority denial", Reasons: []string{"minority_denials 0: found"}},
		}},
		Dial: dialRedlock(rules{checks: true, all: true}),
	})
}
