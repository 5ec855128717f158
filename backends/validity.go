package backends

import (
	"time"

	"github.com/lockquake/lockquake/lock"
)

// Drift is what a holder subtracts from a lease of length ttl, because its clock and the service's may run at
// different speeds. It is 1 % of the TTL plus 2 ms, the figure published with the Redlock algorithm.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Validity returns how long a holder may believe in a promise of length ttl. sent is the time just before the request
// was written. The time of the reply does not matter: the promise may have been made long before. See lock.Validity
// for an example.
func Validity(sent time.Time, ttl time.Duration) lock.Validity {
	return lock.Until(sent.Add(ttl - Drift(ttl)))
}
