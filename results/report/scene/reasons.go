package scene

import (
	"github.com/lockquake/lockquake/history"
)

// Reasons are the reasons that a run recorded, by what they explain. Reports only put a reason into words; where none
// was recorded, none is given.
type Reasons map[reasonKey]history.Event

// reasonKey names an event by its place in the history of a client, or of the resource.
type reasonKey struct {
	client bool
	user   history.User
	op     uint32
}

// NoReason stands for a reason that nobody recorded, as with a resource that is not lockquake's own.
const NoReason = "nobody told why"

// maxReasons bounds how many are kept: no picture shows so many.
const maxReasons = 1 << 16

// Observe keeps an event that is a reason.
func (r Reasons) Observe(process string, e *history.Event) {
	if e.Kind != history.Reason || len(r) == maxReasons {
		return
	}
	_, client := history.ClientOf(process)
	r[reasonKey{client, e.User, e.Op}] = *e
}
