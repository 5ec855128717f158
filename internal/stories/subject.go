package stories

import (
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// Subject is a lock under test by stories.
type Subject struct {
	Backend string // as scenarios write it
	Servers backends.Servers
	Lock    backends.Lock // its name, what it offers, and what it announces
	TTL     time.Duration
	Clients int // contending client processes, in stories with many
	Users   int // of each
	// InProcess says that clients are goroutines, which cannot be paused.
	InProcess bool
	// NoTokens says that this lock has no tokens, although the judge expects them of a lock of that name.
	NoTokens bool
	// Keeps says that a grant does not end while its client lives, even without renewals by its holder.
	Keeps bool
	// Elsewhere says that the clients may keep their locks under keys where the service is not queried.
	Elsewhere bool
	// Quick shortens runs whose length is free.
	Quick bool
}

// times holds the names that a story can use in parentheses, alone or in sums such as (bound+500ms). Multiples of the
// TTL, such as (0.5ttl), can be used too.
var times = map[string]func(Subject) time.Duration{
	"bound": Subject.bound, "calm": Subject.calm, "delay": Subject.delay, "hung": Subject.hung, "long": Subject.long,
	"patience": Subject.patience,
}

// bound returns the time after a holder's death within which the lock must be granted again; 0: the lock names none.
func (s Subject) bound() time.Duration { return s.Lock.Bound(s.TTL, nil) }

// hung returns the time within which the lock must be granted again after the last call of a user that hangs; 0: the
// lock names none.
func (s Subject) hung() time.Duration {
	if s.Lock.Hung == nil {
		return 0
	}
	return s.Lock.Hung(s.TTL, nil)
}

// long returns the timeout of an acquire that must succeed once another grant has ended. It is longer than the bound
// after which the judge reports a stuck lock.
func (s Subject) long() time.Duration {
	const slack = 3 * time.Second
	return max(4*s.TTL+5*time.Second, 2*s.TTL+s.bound()+slack)
}

// patience returns how long a lock without a holder may stay taken: as long as a dead holder's, and a bit.
func (s Subject) patience() time.Duration {
	const slack = 500 * time.Millisecond
	if bound := s.bound(); bound > 0 {
		return bound + slack
	}
	return s.TTL + slack
}

// calm returns the quiet time after which a user that was in trouble must be able to use its lock again. It is longer
// than the bound that the judge allows.
func (s Subject) calm() time.Duration {
	if bound := s.bound(); bound > 0 && s.Lock.Offers.Expires {
		return bound + s.TTL/4
	}
	return s.TTL + s.TTL/4
}

// delay returns the extra one-way delay to the service under which a lock must still be able to keep a grant.
func (s Subject) delay() time.Duration {
	if s.Lock.Offers.Renewal == "background" {
		return s.TTL / 8
	}
	return s.TTL / 16
}

// points returns the points that a story is repeated for, by the words of `per`. Each half of a cycle begins with a
// point "before-...". Points that the lock reaches only if a scenario asks for it are left out.
func (s Subject) points() map[string][]string {
	acquire := slices.DeleteFunc(slices.Clone(s.Lock.Points),
		func(p string) bool { return s.Lock.Waits && p == "wait-done" })
	var release []string
	for i, p := range acquire {
		if i > 0 && strings.HasPrefix(p, "before-") {
			acquire, release = acquire[:i], acquire[i:]
			break
		}
	}
	return map[string][]string{
		"":               {""},
		"acquire-points": acquire[min(1, len(acquire)):max(min(1, len(acquire)), len(acquire)-1)],
		"release-points": release[:max(0, len(release)-1)],
	}
}
