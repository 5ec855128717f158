package locks

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// weakOwner is set-px-lua with a value that is not random: the time of the acquire in milliseconds, and the number of
// the client. It is wrong on purpose. Two users of one client who ask in the same millisecond have the same value. If
// the first outlives its key and the second then has the lock, the first's script finds "its own" value and deletes
// the second's key. The Redis documentation asks for a value that is unique across all clients and all requests
// ("Correct Implementation with a Single Instance"). It calls a time with microseconds and a client id a weaker
// substitute that suffices in most environments. The conformance suite catches it only by chance, if users ask in the
// same millisecond.
func weakOwner() backends.Lock {
	return expiring(backends.Lock{
		Name:  "weak-owner",
		Doc:   "set-px-lua with a time in milliseconds and the client's number instead of a random value.",
		Wrong: "users of one client that ask in the same millisecond have the same value: a holder that outlived its TTL frees the next holder's lock",
		Found: backends.FoundIn("still-clock", "a double grant", "double_grants 0: found",
			"release-stale?", "release-between?", "release-point?",
		),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "wait-done", "before-delete", "release-done"},
		Waits:  true,
		Dial: dialer(func(u user) lock.Locker {
			return oneValue{&recipe{user: u, how: means{give: releaseOwn}}, timeOf}
		}),
	})
}

// timeOf is the time at which an acquire began, and the client's number.
func timeOf(l *recipe, began time.Time) (id string, why lock.Reason) {
	why = lock.Reason{Cause: lock.CauseOwnerValue, N: began.UnixMilli(), Seen: uint64(l.process)}
	return fmt.Sprintf("%d-%d", why.N, why.Seen), why
}
