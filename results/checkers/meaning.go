package checkers

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// What the acknowledged writes of a workload may mean, as Run.Writes tells, and the term that judges sales.
const (
	writesSales     = "sales"
	writesSeats     = "seats"
	writesTransfers = "transfers"
	writesElements  = "elements"
	writesWork      = "work"
	termStock       = "stock"
)

// acknowledgedWrites are the chances of harm to what the lock protects.
const acknowledgedWrites = "acknowledged writes"

// place is one user's view of what one lock protects.
type place struct {
	user history.User
	lock uint16
}

func placeOf(e *history.Event) place { return place{e.User, e.Lock} }

// finals is the final read of each lock.
type finals map[uint16]history.Event

// observe takes a final read; those of the resource's own log and of the engine say the same.
func (f finals) observe(e *history.Event) {
	if e.Kind == history.Final {
		f[e.Lock] = *e
	}
}

// applies returns the finding of a property that is about what writes mean, and whether there is something to judge.
// That takes a resource, writes with that meaning, some of them acknowledged, and a final read.
func applies(r results.Run, meaning string, acknowledged int, read finals) (results.Finding, bool) {
	f := results.Finding{Verdict: results.Clean}
	switch {
	case r.Resource == "":
		return skipped(f, "nothing is protected: there is no resource"), false
	case r.Writes != meaning:
		return skipped(f, "the workload's writes are no "+meaning), false
	case len(read) == 0:
		return lacking(f, "there was no final read"), false
	case acknowledged == 0:
		return skipped(f, "no write was acknowledged"), false
	}
	return f, true
}
