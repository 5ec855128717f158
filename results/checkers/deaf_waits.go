// Deaf waits: a call that was told to end returns.
//
// A call is an acquire, a renewal, a release or a close of the lock object. It is told to end by its deadline, which
// its invoke names, by a cancel, or by a close of its lock object. A call that does not return within a TTL of that
// is deaf, or within a second if the TTL is shorter.
//
// Example: A asks at 0 s with a deadline of 1 s, and at 3.5 s learns that it did not get the lock. With a TTL of 2 s
// the wait is deaf: it was 2.5 s late. If A had been stopped by SIGSTOP for one of these seconds, it would not be:
// that time does not count.
//
// A client that hangs gives no final report. When the run is over it is asked to end, and waited for. If its process
// lives then, and is not stopped, its open calls have not returned.
//
// It cannot see calls whose deadline the client does not report. A user that a scenario holds at a point longer than
// its deadline seems deaf.

package checkers

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type deafWaits struct {
	run     results.Run
	bound   int64
	calls   users.Table[[]call]
	list    evidence.Shortlist
	late    []evidence.Stay // calls, from when they were told to end
	told    int64
	longest int64
	last    int64
	dead    map[int]bool // clients: none of their calls is in progress
}

// call is a call in progress.
type call struct {
	invoke history.Event
	cancel history.Event // or close; KindNone: it was not cancelled
	until  int64         // when it is told to end; forever: never
}

var deafWaitsKind = results.CheckerKind{
	Name: "deaf_waits", New: newDeafWaits, Grants: true,
	Doc: "After its deadline, a cancel or the close of its lock object, a call returns within a TTL.",
	Counts: []results.Quantity{
		{
			Name: "deaf_waits", Doc: "acquires, renewals, releases and closes that returned more than a TTL (at least a second) after their deadline, a cancel, or the close of their lock object",
			Tone: results.Violation, Of: "calls that were under way at their deadline, cancel or close",
		},
	},
	Measures: []results.Quantity{
		{Name: "deaf_wait_ms_max", Doc: "the longest time from a call's deadline or cancel to its return"},
	},
	Witnesses: results.Aside("deaf_wait"),
}

func newDeafWaits(run results.Run) results.Checker {
	return &deafWaits{
		run: run, dead: map[int]bool{}, bound: max(run.TTL, int64(time.Second)),
	}
}

// Observe takes the next event.
func (c *deafWaits) Observe(e *history.Event) {
	c.last = max(c.last, e.Time)
	switch e.Kind {
	case history.Acquire, history.Renew, history.Release, history.Close, history.Reenter, history.Leave,
		history.ReleaseUnheld:
	case history.Cancel:
		for i, u := 0, *c.calls.At(e.User); i < len(u); i++ {
			if u[i].invoke.Op == e.Op {
				u[i].cancel, u[i].until = *e, min(u[i].until, e.Time)
			}
		}
		return
	case history.Dead:
		if client := e.User.Client(); !c.dead[client] { // reported for each of its holds
			c.dead[client] = true
			c.hung(client)
			for _, u := range c.calls.Client(client) {
				*u = (*u)[:0]
			}
		}
		return
	default:
		return
	}
	u := c.calls.At(e.User)
	if e.Phase == history.Invoke {
		if c.dead[e.User.Client()] {
			return
		}
		if e.Kind == history.Close {
			for i := range *u {
				x := &(*u)[i]
				if e.Time < x.until {
					x.cancel, x.until = *e, e.Time
				}
			}
		}
		x := call{invoke: *e, until: results.Forever}
		if e.Valid > 0 {
			x.until = max(e.Valid, e.Time)
		}
		*u = append(*u, x)
		return
	}
	if i := slices.IndexFunc(*u, func(x call) bool { return x.invoke.Op == e.Op }); i >= 0 {
		c.returned((*u)[i], e.Time, e)
		*u = slices.Delete(*u, i, i+1)
	}
}

// returned takes the end of a call; end is nil if it had not ended by then.
func (c *deafWaits) returned(x call, at int64, end *history.Event) {
	if at <= x.until {
		return
	}
	c.told++
	user := x.invoke.User
	took := at - x.until - c.run.Still.Asked(history.ClientName(user.Client()), x.until, at)
	c.longest = max(c.longest, took)
	if took <= c.bound {
		return
	}
	c.late = append(c.late, evidence.Stay{
		User: user, Lock: x.invoke.Lock, Start: x.until, End: at, Late: took - c.bound,
	})
	how, what := "its deadline", "returned"
	p := evidence.Proof{
		Kind: "deaf_wait", From: x.until, To: at, Rank: int(took / 1e6), Events: []history.Event{x.invoke},
	}
	if x.cancel.Kind != history.KindNone {
		how, p.Events = "it was cancelled", append(p.Events, x.cancel)
		if x.cancel.Kind == history.Close {
			how = "its lock object was closed"
		}
	}
	if end != nil {
		p.Events = append(p.Events, *end)
	} else {
		what = "had not returned"
	}
	p.Text = func() string {
		return fmt.Sprintf("%s of %v had to end at %s (%s) and %s at %s, %.3f ms late; the bound is %.3f ms",
			x.invoke.Kind, user, c.run.MS(x.until), how, what, c.run.MS(at), results.Milli(took),
			results.Milli(c.bound))
	}
	if c.list.Wants(p.Rank) {
		c.list.Add(p)
	}
}

// hung takes the calls of a client that did not end when the run was over. It was observed alive, and then killed:
// none of its calls returned.
func (c *deafWaits) hung(client int) {
	for _, h := range c.run.Hung {
		if h.Name != history.ClientName(client) {
			continue
		}
		for _, u := range c.calls.Client(client) {
			for _, x := range *u {
				c.returned(x, h.Until, nil)
			}
			*u = (*u)[:0]
		}
	}
}

// Finish returns the finding.
func (c *deafWaits) Finish() results.Finding {
	dead := users.DeadClients(c.run)
	for _, h := range c.run.Hung {
		if client, ok := history.ClientOf(h.Name); ok {
			c.hung(client)
		}
	}
	for user, calls := range c.calls.All() {
		for _, x := range *calls {
			if !slices.Contains(dead, user.Client()) {
				c.returned(x, c.last, nil)
			}
		}
	}
	n := int64(len(c.late))
	f := results.Finding{Verdict: results.VerdictOf(n), Counts: map[string]*int64{"deaf_waits": new(n)}}
	f.Chances = map[string]results.Chances{"deaf_waits": {N: c.told}}
	if c.told > 0 {
		f.Measures = map[string]*float64{"deaf_wait_ms_max": new(results.Milli(c.longest))}
	}
	evidence.ExcuseWaits(c.run, c.late, evidence.Own).Into(&f, "deaf_waits")
	f.Witnesses = c.list.Witnesses(c.run)
	return f
}
