// Package ask defines the messages between a test program and lockquake about the stories of a lock. The program
// describes its own lock in JSON, and `lockquake list scenarios --suite --of -` answers with the scenario of each
// story. So a program that links package locktest links neither the stories nor what the services can do.
package ask

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// Lock is a lock that lockquake does not have.
type Lock struct {
	Backend string   `json:"backend"` // the service that it uses
	StandIn string   `json:"lock"`    // lockquake's own lock with the same promises to the judge
	Set     []string `json:"set,omitempty"`
	// TTL and Recovery are in nanoseconds.
	TTL      time.Duration   `json:"ttl_ns"`
	Recovery Recovery        `json:"recovery"`
	Offers   backends.Offers `json:"offers"` // a wall clock that ends its grants is added if the service has one
	Points   []string        `json:"points,omitempty"`
	Clients  int             `json:"clients"`
	Users    int             `json:"users"`
	Quick    bool            `json:"quick"`
	// Elsewhere says that its keys may differ from those under which the service can be queried for the lock's name.
	Elsewhere bool `json:"elsewhere"`
	// Hung bounds the time to the next grant after the last call of a user that hangs while its process lives. 0: the
	// lock declares no bound. A lock that declares one renews grants by itself.
	Hung time.Duration `json:"hung_ns,omitempty"`
}

// Recovery bounds the time from a holder's death to the next grant: a multiple of the TTL plus a time.
type Recovery struct {
	TTLs int           `json:"ttls"`
	Plus time.Duration `json:"plus_ns"`
}

// Bound returns the bound for a TTL.
func (r Recovery) Bound(ttl time.Duration) time.Duration { return time.Duration(r.TTLs)*ttl + r.Plus }

// Story is one of the stories of a lock, in the order in which they are run.
type Story struct {
	Name     string `json:"name"`
	Quick    bool   `json:"quick"`
	Grants   int64  `json:"grants,omitempty"`   // the number of grants it is about; 0: it is not about a number
	Why      string `json:"why,omitempty"`      // why it does not apply; "": it does
	Scenario string `json:"scenario,omitempty"` // YAML, if it applies
	Error    string `json:"error,omitempty"`    // why its file cannot be read
}

// Short says what a run without findings is worth if it has fewer grants than its story is about; "" if it has as
// many.
func Short(judged, about int64) string {
	if judged >= about {
		return ""
	}
	return fmt.Sprintf("%d grants were judged, but the story needs %d: violations that need more grants were not seen, and those by chance are rarer than 3/%d with 95 %% confidence",
		judged, about, judged)
}
