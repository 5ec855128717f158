// Unheld releases: a release by a user that does not have the lock frees nothing.
//
// A scenario has a user release a lock that it was never granted, or that it released before; or it has another lock
// object in the same process do so. The service as a whole is asked who has the lock before and after. Such a release
// frees the lock if the grant that was there before is gone afterwards, although
//   - its end had not come, according to the service and to its user's last news
//   - its user had not begun to release it, nor learned of its loss, nor died
//   - no other user's release was in progress, and no server was broken
//
// Example: A is granted the lock at 0 s, valid until 2 s. B, which never had it, releases it at 0.1 s. A reading at
// 0.05 s says that A has it, and one at 0.15 s that it is free. B freed it, whatever answer B got.
//
// An ok is counted separately. Some services delete what may not exist and answer ok to that, as etcd's Unlock does.
//
// It cannot see what happens between the two readings if the grant is there again at the second.

package checkers

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// unheldReleases uses the readings, grants and releases that falseResults collects, of all other calls.
type unheldReleases struct {
	*falseResults
	invokes map[grantOf]history.Event // by user and op
	unheld  []*answeredOp
	ends    map[grantOf]int64 // of the latest validity that the user got
}

var unheldReleasesKind = results.CheckerKind{
	Name: "unheld_releases", New: newUnheldReleases, Grants: true,
	Doc: "A release by a user who does not have the lock frees nothing. Judged in runs by steps that order one, if the service names the owner of a lock.",
	Counts: []results.Quantity{
		{
			Name: "unheld_frees", Doc: "releases by users who did not have the lock, after which the grant of another user was gone ([asked](#what-the-service-has) before and after)",
			Tone: results.Violation, Of: "releases of a lock that another user had", NeedsAll: true,
		},
		{
			Name: "unheld_oks",
			Doc:  "releases by users who had never had the lock, or had it no longer, that were answered ok",
			Tone: results.Doubtful, NeedsAll: true,
		},
	},
	Witnesses: results.Aside("unheld_free", "unheld_ok"),
}

func newUnheldReleases(run results.Run) results.Checker {
	return &unheldReleases{
		falseResults: newFalseResults(run).(*falseResults), invokes: map[grantOf]history.Event{},
		ends: map[grantOf]int64{},
	}
}

// Observe takes the next event.
func (c *unheldReleases) Observe(e *history.Event) {
	g := grantOf{e.User, e.Op}
	switch {
	case e.Kind == history.ReleaseUnheld && e.Phase == history.Invoke:
		c.invokes[g] = *e
	case e.Kind == history.ReleaseUnheld:
		c.unheld = append(c.unheld, &answeredOp{invoke: c.invokes[g], answer: *e})
		delete(c.invokes, g)
	case len(c.reads[e.Lock]) == 0: // no reading of it can show a grant
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		c.ends[g] = e.Valid
	case e.Kind == history.Renew && e.Phase == history.Ok, e.Kind == history.Renewed:
		c.ends[grantOf{e.User, e.Grant}] = e.Valid
	}
	c.falseResults.Observe(e)
}

// around returns the last reading before a call and the first one after it; nil without one.
func (c *unheldReleases) around(op *answeredOp) (before, after *history.Observation) {
	reads := c.reads[op.invoke.Lock]
	for i := range reads {
		switch o := &reads[i]; {
		case o.LastAnswered < c.clocks.Early(op.invoke.User, op.invoke.Time):
			before = o
		case after == nil && o.Asked > c.clocks.Late(op.answer.User, op.answer.Time):
			after = o
		}
	}
	return before, after
}

// freed reports whether a call ended the grant that was there before it, and returns the deciding readings; judged is
// false if they cannot tell.
func (c *unheldReleases) freed(op *answeredOp) (before, after *history.Observation, yes, judged bool) {
	before, after = c.around(op)
	if before == nil || after == nil || before.User == nil {
		return before, after, false, false
	}
	g := grantOf{*before.User, before.Grant}
	end := c.ends[g]
	if end != history.ValidEndless {
		end = c.clocks.Early(g.user, end)
	}
	if before.EndsIn != nil {
		end = min(end, before.Asked+*before.EndsIn)
	}
	if left, ok := c.left[g]; ok {
		end = min(end, c.clocks.Early(g.user, left))
	}
	if after.Answered >= end || !c.alone(judgedOp{answeredOp: op, grant: g}, before.Asked, after.Answered) {
		return before, after, false, false
	}
	return before, after, c.lacks(after, g), true
}

// Finish returns the finding.
func (c *unheldReleases) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	if len(c.unheld) == 0 {
		return f.NotApplicable("no step released a lock that its user did not have")
	}
	var n, chances, oks int64
	for _, op := range c.unheld {
		before, after, freed, judged := c.freed(op)
		if judged {
			chances++
		}
		if freed {
			n++
			f.Prove(c.unheldWitness("unheld_free", op,
				fmt.Sprintf("%v had it before; then %s", *before.User, whose(after)), before, after))
		}
		if op.answer.Phase == history.Ok {
			oks++
			f.Prove(c.unheldWitness("unheld_ok", op, "it did not have the lock"))
		}
	}
	out := f.Judged("unheld_frees", n, chances)
	if len(c.reads) == 0 {
		out.Counts["unheld_frees"] = nil
	}
	out.Counts["unheld_oks"] = new(oks)
	return out
}

func (c *unheldReleases) unheldWitness(kind string, op *answeredOp, why string,
	by ...*history.Observation,
) results.Witness {
	told := "ok"
	if op.answer.Phase != history.Ok {
		told = history.CodeName(op.answer.Code)
	}
	w := results.Witness{
		Kind: kind, Lock: c.run.LockName(op.invoke.Lock), From: op.invoke.Time, To: op.answer.Time,
		Events: []history.Event{op.invoke, op.answer},
		Text: fmt.Sprintf("%v, who did not have %s, released it at %s and was answered %s at %s: %s", op.invoke.User,
			c.run.LockName(op.invoke.Lock), c.run.MS(op.invoke.Time), told, c.run.MS(op.answer.Time), why),
	}
	for _, o := range by {
		w.From, w.To = min(w.From, o.Asked), max(w.To, o.Answered)
		w.Observed = append(w.Observed, *o)
	}
	return w
}
