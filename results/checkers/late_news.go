// Late news: how long a holder was not told that its lock was gone.
//
// It is the time from the end of a hold's validity to the moment at which its user was told: by the lock itself
// (lost), or by a renewal or release that the service refused because the grant was not there. In between a user
// acts upon a grant that it no longer has.
//
// It cannot see holders that were never told, nor what a user could have known by its own clock. It judges nothing;
// a scenario bounds it.

package checkers

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type lateNews struct {
	t       *tracker
	over    byUser[outlived] // by the user: the hold that it releases
	told    int64
	longest int64
}

// outlived is a hold whose validity was over when its release began.
type outlived struct {
	op    uint32 // of the release
	until int64  // 0 for none
}

var lateNewsKind = results.CheckerKind{
	Name: "late_news", New: newLateNews,
	Doc: "How long it took until a holder was told that it had lost the lock.",
	Measures: []results.Quantity{
		{Name: "late_news_ms_max", Doc: "the longest time from the end of a holder's validity to the moment at which it was told: by the lock, or by a renewal or release that was refused"},
	},
}

func newLateNews(run results.Run) results.Checker {
	c := &lateNews{}
	c.t = newTracker(run, c)
	c.t.reuse = true
	return c
}

// Observe takes the next event.
func (c *lateNews) Observe(e *history.Event) {
	gone := e.Phase == history.Fail && notHeld(e.Code)
	if e.Kind == history.Renew && gone {
		if h := c.t.open(e.User, e.Grant); h != nil {
			c.hear(h.until(), e.Time)
		}
	}
	c.t.observe(e)
	if u := c.over.at(e.User); e.Kind == history.Release && e.Phase != history.Invoke && u.op == e.Op && u.until != 0 {
		if gone {
			c.hear(u.until, e.Time)
		}
		*u = outlived{}
	}
}

// hear notes the time told, at which a user learned of the end of a grant that had been valid until then.
func (c *lateNews) hear(until, told int64) {
	if until != 0 && until < told {
		c.told++
		c.longest = max(c.longest, told-until)
	}
}

func (c *lateNews) began(*hold) {}

func (c *lateNews) takenBack(*hold, int64) {}

func (c *lateNews) ended(h *hold) {
	switch until := h.until(); {
	case h.over.Kind == history.Lost:
		c.hear(until, h.over.Time)
	case h.over.Kind == history.Release && until < h.over.Time:
		*c.over.at(h.user) = outlived{h.over.Op, until}
	}
}

// Finish returns the finding.
func (c *lateNews) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{"late_news_ms_max": nil}}
	if c.told == 0 {
		f.Verdict, f.Skipped = results.Unknown, "nobody was told late of a loss"
		return f
	}
	f.Measures["late_news_ms_max"] = measure(results.Milli(c.longest))
	return f
}
