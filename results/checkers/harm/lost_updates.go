// Lost updates: every acknowledged effect is there at the end.
//
// If each acknowledged write adds one to what the lock protects, the final value must be at least the number of
// writes that the clients saw acknowledged; the difference is lost.
//
// It cannot see which update was lost, nor one that an unacknowledged but applied write hides: the count is a lower
// bound.

package harm

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type lostUpdates struct {
	run   results.Run
	locks map[uint16]*updates
}

type updates struct {
	acknowledged int64
	final        *history.Event
}

// LostUpdates judges counters.
var LostUpdates = results.CheckerKind{
	Name: "lost_updates", New: newLostUpdates,
	Doc: "Every acknowledged effect is there at the end.",
	Counts: []results.Quantity{
		{
			Name: "lost_updates", Doc: "acknowledged writes that are missing from the final value",
			Tone: results.Violation, Of: acknowledgedWrites, First: 5, Outlived: true,
		},
	},
	Witnesses: results.Aside("lost_update"),
}

func newLostUpdates(run results.Run) results.Checker {
	return &lostUpdates{run: run, locks: map[uint16]*updates{}}
}

// Observe takes the next event.
func (c *lostUpdates) Observe(e *history.Event) {
	acknowledged := e.Kind == history.Write && e.Phase == history.Ok
	if !acknowledged && e.Kind != history.Final {
		return
	}
	u := c.locks[e.Lock]
	if u == nil {
		u = &updates{}
		c.locks[e.Lock] = u
	}
	if acknowledged {
		u.acknowledged++
		return
	}
	final := *e
	u.final = &final
}

// Finish returns the finding.
func (c *lostUpdates) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	switch {
	case c.run.Resource == "":
		return f.NotApplicable("there is no resource")
	case !c.run.Increments:
		return f.NotApplicable("the workload's writes are no increments: lost ones cannot be counted")
	}
	var lost, acknowledged int64
	finals := 0
	for i := range c.run.Locks {
		u := c.locks[uint16(i)]
		if u == nil {
			continue
		}
		if u.final == nil {
			return f.Lacking(notRead(c.run, uint16(i)))
		}
		finals++
		acknowledged += u.acknowledged
		if n := u.acknowledged - u.final.Value; n > 0 {
			lost += n
			f.Found(uint16(i), n)
			f.Prove(results.Witness{
				Kind: "lost_update", Lock: c.run.LockName(uint16(i)), From: c.run.Start, To: u.final.Time,
				Text: fmt.Sprintf("%d writes under %s were acknowledged, but its final value is %d",
					u.acknowledged, c.run.LockName(uint16(i)), u.final.Value),
				Events: []history.Event{*u.final},
			})
		}
	}
	if finals == 0 {
		return f.Lacking("there was no final read")
	}
	if acknowledged == 0 {
		return f.NotApplicable("no write was acknowledged")
	}
	return f.Judged("lost_updates", lost, acknowledged)
}
