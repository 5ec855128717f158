// Package harm has the checkers that look only at what the lock protects: whether each acknowledged effect is there
// at the end, and nothing was sold, booked or done twice. They ignore holds.
package harm

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// The meanings of a workload's acknowledged writes, as in Run.Writes, and the term that judges sales.
const (
	writesSales     = "sales"
	writesSeats     = "seats"
	writesTransfers = "transfers"
	writesElements  = "elements"
	writesWork      = "work"
	termStock       = "stock"
)

// acknowledgedWrites names the chances of harm to what the lock protects.
const acknowledgedWrites = "acknowledged writes"

// finals is the final read of each lock.
type finals map[uint16]history.Event

// observe takes a final read; those of the resource's own log and of the engine agree.
func (f finals) observe(e *history.Event) {
	if e.Kind == history.Final {
		f[e.Lock] = *e
	}
}

// notRead says why nothing is judged if writes under a lock were acknowledged but its final value is unknown.
func notRead(r results.Run, lock uint16) string {
	return fmt.Sprintf("there was no final read of %s", r.LockName(lock))
}

// applies returns the finding of a property of the writes' meaning, and whether there is something to judge. That
// needs a resource, writes with that meaning, some of them acknowledged, and a final read.
func applies(r results.Run, meaning string, acknowledged int, read finals) (results.Finding, bool) {
	f := results.Finding{Verdict: results.Clean}
	switch {
	case r.Resource == "":
		return f.NotApplicable("there is no resource"), false
	case r.Writes != meaning:
		return f.NotApplicable("the workload's writes are no " + meaning), false
	case len(read) == 0:
		return f.Lacking("there was no final read"), false
	case acknowledged == 0:
		return f.NotApplicable("no write was acknowledged"), false
	}
	return f, true
}
