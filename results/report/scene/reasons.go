package scene

import (
	"github.com/lockquake/lockquake/history"
)

// Reasons are the recorded reasons of a run, by the event they explain. Reports only put a reason into words; without
// a recorded one they give none.
type Reasons map[reasonKey]history.Event

// reasonKey identifies an event by its place in the history of a client, or of the resource.
type reasonKey struct {
	client bool
	user   history.User
	op     uint32
}

// NoReason is the text for a reason that was not recorded, as with a foreign resource.
const NoReason = "no reason recorded"

// maxReasons bounds the kept reasons: no picture shows so many.
const maxReasons = 1 << 16

// Observe keeps an event that is a reason.
func (r Reasons) Observe(process string, e *history.Event) {
	if e.Kind != history.Reason || len(r) == maxReasons {
		return
	}
	_, client := history.ClientOf(process)
	r[reasonKey{client, e.User, e.Op}] = *e
}
