package results

import (
	"maps"
	"slices"
)

// Contents counts what a service keeps, by kind: before the load, at its end with live clients, and after the clients
// ended and the TTL of their last grants was over. After is nil if the service did not report it, or that TTL was too
// long to wait for.
type Contents struct {
	Before map[string]Content `json:"before"`
	Loaded map[string]Content `json:"loaded,omitempty"`
	After  map[string]Content `json:"after,omitempty"`
}

// Content counts the objects of one kind.
type Content struct {
	N int64 `json:"n"`
	// objects that a correct lock keeps per user, however many grants there were
	PerUser  int64 `json:"per_user,omitempty"`
	PerLock  int64 `json:"per_lock,omitempty"` // and for each lock name
	Attached bool  `json:"attached,omitempty"` // an object ends with the client that made it, such as a session
}

// Leftover says how many more objects of a kind the service keeps than before the load, and how many of them are
// explained. The users, the lock names and 1 % of the grants explain objects.
type Leftover struct {
	Kind            string
	More, Explained int64
}

// Left returns the unexplained leftovers by kind. Objects that end with their clients are counted while those live,
// the others later.
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
