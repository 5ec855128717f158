package results

import (
	"maps"
	"slices"
)

// Contents is how many things a service kept, by kind: before the load, at its end while the clients still lived, and
// when they had ended and the TTL of their last grants was over. After is nil where the service did not say so, or that
// TTL was too long to wait for.
type Contents struct {
	Before map[string]Content `json:"before"`
	Loaded map[string]Content `json:"loaded,omitempty"`
	After  map[string]Content `json:"after,omitempty"`
}

// Content is the things of one kind.
type Content struct {
	N int64 `json:"n"`
	// as many as a right lock keeps for each user, however many grants there were
	PerUser  int64 `json:"per_user,omitempty"`
	PerLock  int64 `json:"per_lock,omitempty"` // and for each lock name
	Attached bool  `json:"attached,omitempty"` // a thing ends with the client that made it, such as a session
}

// Leftover is how many things of a kind the service keeps more than before the load, and how many of these users, lock
// names and 1 % of the grants explain.
type Leftover struct {
	Kind            string
	More, Explained int64
}

// Left returns, by kind, what is not explained. Things that end with their clients are looked at while these live, the
// others later.
func (c Contents) Left(users, locks int, grants int64) (out []Leftover) {
	for _, kind := range slices.Sorted(maps.Keys(c.Before)) {
		now, known := c.After[kind]
		if c.Before[kind].Attached {
			now, known = c.Loaded[kind]
		}
		l := Leftover{
			Kind: kind, More: now.N - c.Before[kind].N, Explained: now.PerUser*int64(users) + now.PerLock*int64(locks) +
				grants/100,
		}
		if known && l.More > l.Explained {
			out = append(out, l)
		}
	}
	return out
}
