// Late news: how late a holder learned that its lock was gone.
//
// It is the time from the end of a hold's validity to the moment at which its user was notified: by the lock itself
// (lost), or by a renewal or release that the service refused because the grant was not there. In between a user acts
// upon a grant that it no longer has.
//
// If the lock notifies of losses, a holder counts as untold when all of this is true:
//   - its validity ended
//   - another user was then granted its lock
//   - it kept its grant without news for longer than the recovery bound after that
//
// While a fault stops its process, no time passes for it. The other user's grant proves the loss: a client may keep a
// grant alive without reporting renewals.
//
// It cannot see what a user could have known by its own clock, nor holders that released before the bound was over.
// It ignores losses after which no user was granted the lock.

package checkers

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// maxNewsLooks bounds how often a new hold is compared with open ones. Beyond it the count is a lower bound.
const maxNewsLooks = 1 << 23

type lateNews struct {
	run     results.Run
	t       *tracker
	bound   int64
	last    int64
	lost    map[*hold]int64 // of an open hold: when another user's grant showed that it was gone
	outlive int64           // holds that were lost to another user
	untold  []evidence.Stay
	looks   evidence.Looks // comparisons with holds of others
	list    evidence.Shortlist
	over    users.Table[outlived] // by user: the hold that it releases
	told    int64
	longest results.Span
}

// outlived is a hold whose validity was over when its release began.
type outlived struct {
	op    uint32 // of the release
	until int64  // 0 for none
}

var lateNewsKind = results.CheckerKind{
	Name: "late_news", New: newLateNews, Follows: holdsOnce, Grants: true,
	Doc: "How late a holder learned that it had lost the lock.",
	Counts: []results.Quantity{
		{
			Name: "untold_losses", Doc: "holders that did not learn of the loss within the recovery bound after the lock was granted to another user; judged if the lock reports losses",
			Tone: results.Violation, Of: "holds that were lost to another user", NeedsEnds: true,
		},
	},
	Measures: []results.Quantity{
		{Name: "late_news_ms_max", Doc: "the longest time from the end of a holder's validity until it learned of it: from the lock, or from a refused renewal or release"},
	},
	Witnesses: results.Aside("untold_loss"),
}

func newLateNews(run results.Run) results.Checker {
	return &lateNews{
		run: run, bound: run.RecoveryBound(), lost: map[*hold]int64{}, looks: evidence.Looks{Most: maxNewsLooks},
	}
}

func (c *lateNews) follow(t *tracker) watch {
	c.t = t
	return watch{began: c.began, ended: c.ended, last: c.end}
}

// Observe takes the next event.
func (c *lateNews) Observe(e *history.Event) {
	c.last = max(c.last, e.Time)
	gone := e.Phase == history.Fail && notHeld(e.Code)
	if e.Kind == history.Renew && gone {
		if h := c.t.open(e.User, e.Grant); h != nil {
			c.hear(h.until(), e.Time)
		}
	}
	if u := c.over.At(e.User); e.Kind == history.Release && e.Phase != history.Invoke && u.op == e.Op && u.until != 0 {
		if gone {
			c.hear(u.until, e.Time)
		}
		*u = outlived{}
	}
}

// hear records the time told at which a user learned of the end of a grant that had been valid until then.
func (c *lateNews) hear(until, told int64) {
	if until != 0 && until < told {
		c.told++
		if x := (results.Interval{From: until, To: told}).Span(); x.Length > c.longest.Length {
			c.longest = x
		}
	}
}

// began records which holds the new one proves lost.
func (c *lateNews) began(h *hold) {
	for _, o := range c.t.held(h.lock) {
		if !c.looks.Take(1) {
			return
		}
		if over := o.until(); o.user != h.user && conflict(o.mode, h.mode) && c.lost[o] == 0 && over != 0 &&
			o.latest(over) <= h.earliest(h.start) {
			c.lost[o] = h.latest(h.start)
		}
	}
}

func (c *lateNews) ended(h *hold) {
	c.outlived(h, h.end)
	delete(c.lost, h)
	switch until := h.until(); {
	case h.over.Kind == history.Lost:
		c.hear(until, h.over.Time)
	case h.over.Kind == history.Release && until < h.over.Time:
		*c.over.At(h.user) = outlived{h.over.Op, until}
	}
}

// outlived takes a hold that its user had in hand until then, without news.
func (c *lateNews) outlived(h *hold, until int64) {
	over, lost := h.until(), c.lost[h]
	// a renewal after the other's grant: that was no loss
	if !c.run.Tells || c.bound <= 0 || lost == 0 || lost < over || h.over.Kind == history.Dead {
		return
	}
	c.outlive++
	process := history.ClientName(h.user.Client())
	late := h.earliest(until) - lost - c.run.Still.Asked(process, lost, until) - c.bound
	if late <= 0 {
		return
	}
	c.untold = append(c.untold, evidence.Stay{User: h.user, Lock: h.lock, Start: lost, End: until, Late: late})
	c.list.Add(evidence.Proof{
		Kind: "untold_loss", From: lost, To: until, Holds: []evidence.Hold{h}, Rank: int(late / 1e6),
		Text: func() string {
			return fmt.Sprintf("the validity of %v ended at %s, another user was granted the lock at %s, and by %s the holder had not learned of the loss; the bound is %.3f ms",
				h.user, c.run.MS(over), c.run.MS(lost), c.run.MS(until), results.Milli(c.bound))
		},
	})
}

// end takes the users that hold a lock at the end of the history.
func (c *lateNews) end(t *tracker) {
	dead := users.DeadClients(c.run)
	for _, open := range t.locks {
		for _, h := range open {
			if !slices.Contains(dead, h.user.Client()) {
				c.outlived(h, c.last)
			}
		}
	}
}

// Finish returns the finding.
func (c *lateNews) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{"late_news_ms_max": nil}}
	if c.told > 0 {
		f.Measures["late_news_ms_max"] = new(results.Milli(c.longest.Length))
		f.Spans = map[string][]results.Span{"late_news_ms_max": {c.longest}}
	}
	switch {
	case !c.run.Tells && c.told == 0:
		f.Verdict, f.Skipped = results.Unknown, "the lock reports no losses, and no holder learned of one late"
	case c.run.Tells && c.bound > 0:
		n := int64(len(c.untold))
		f.Verdict, f.Counts = results.VerdictOf(n), map[string]*int64{"untold_losses": new(n)}
		f.Chances = map[string]results.Chances{"untold_losses": {N: c.outlive}}
		evidence.ExcuseWaits(c.run, c.untold, evidence.Own).Into(&f, "untold_losses")
		f.Witnesses = c.list.Witnesses(c.run)
		c.looks.Bound(&f, n, "too many holds are open at once to compare all of them with each new one: the count is a lower bound")
	}
	return f
}
