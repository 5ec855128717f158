package stories

import (
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// Subject is a lock that is put to stories.
type Subject struct {
	Backend string // as scenarios write it
	Servers backends.Servers
	Lock    backends.Lock // its name, what it offers, and what it announces
	TTL     time.Duration
	Clients int // client processes that fight, where many do
	Users   int // of each
	// InProcess says that clients are goroutines, which cannot be paused.
	InProcess bool
	// NoTokens says that the judge expects tokens of a lock of that name, and this one has none.
	NoTokens bool
	// Keeps says that a grant does not end while its client lives, though its holder asks for nothing.
	Keeps bool
	// Elsewhere says that the clients may keep their locks where the service is not asked for them.
	Elsewhere bool
	// Quick makes runs shorter whose length is free.
	Quick bool
}

// times are what a story can name between parentheses, alone or in sums such as (bound+500ms). Beside them are
// multiples of the TTL, such as (0.5ttl).
var times = map[string]func(Subject) time.Duration{
	"bound": Subject.bound, "calm": Subject.calm, "delay": Subject.delay, "long": Subject.long,
	"patience": Subject.patience,
}

// bound is within what time after a holder's death the lock must be granted again; 0: it names none.
func (s Subject) bound() time.Duration { return s.Lock.Bound(s.TTL, nil) }

// long is for how long an acquire may wait that must succeed once another grant has ended: longer than the bound after
// which the judge says that a lock is stuck.
func (s Subject) long() time.Duration {
	const slack = 3 * time.Second
	return max(4*s.TTL+5*time.Second, 2*s.TTL+s.bound()+slack)
}

// patience is for how long a lock may stay that nobody holds: as long as a dead holder's, and a bit.
func (s Subject) patience() time.Duration {
	const slack = 500 * time.Millisecond
	if bound := s.bound(); bound > 0 {
		return bound + slack
	}
	return s.TTL + slack
}

// calm is for how long nothing happens before a user that was in trouble must be able to use its lock again: longer
// than the bound that the judge leaves it.
func (s Subject) calm() time.Duration {
	if bound := s.bound(); bound > 0 && s.Lock.Offers.Expires {
		return bound + s.TTL/4
	}
	return s.TTL + s.TTL/4
}

// delay is how much longer each way to the service takes, where a lock must still be able to keep a grant.
func (s Subject) delay() time.Duration {
	if s.Lock.Offers.Renewal == "background" {
		return s.TTL / 8
	}
	return s.TTL / 16
}

// points are what a story is told for each of, by the words of `per`. Each half of a cycle begins with a point
// "before-...". Points that the lock comes to only where a scenario asks for it are left out.
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
