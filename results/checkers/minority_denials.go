// Minority denials: while a majority of the servers is untouched, a free lock is granted.
//
// It is judged if a majority of servers decides, and while faults stand on some of them. A server is touched if it is
// a target of a standing fault or at the other end of a broken link. A user asks in vain when no user has the lock in
// hand, more than half of the servers are untouched, and no fault is on its own client. If it does so for longer than
// twice the recovery bound, it is denied the lock: by one acquire of more than the bound, or by three at least
// without a grant between them. The time restarts at each fault that begins or ends. The first bound is for servers
// that must agree anew, such as on a leader, and the second one for the user.
//
// Example: of five servers one is stopped at 10 s, and the bound is 3 s. A asks in vain from 11 s to 15 s, and again
// from 16 s to 19.5 s. It is denied the lock: four servers were there.
//
// It cannot see a lock that no user asks for meanwhile, and it does not judge a lock that a user has in hand.

package checkers

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type minorityDenials struct {
	run     results.Run
	bound   int64
	heard   int64 // all holds are known until then
	t       *tracker
	changes []int64         // the future times at which faults begin and end
	changed int64           // the latest one
	next    int             // index of the first of the run's faults that has not begun
	stands  []history.Fault // faults that stand
	touched []string        // servers touched by these
	broken  []string        // nodes touched by these, clients included
	asks    map[results.Place]*deniedAsk
	asked   int64
	vain    vain
	last    int64
}

// deniedAsk is a user that asks for a lock, and its number of successive vain acquires since the last change.
type deniedAsk struct {
	vainAsk
	n int
}

// fewestDenied is the number of successive vain acquires that chance, such as time-outs of a busy machine, does not
// explain.
const fewestDenied = 3

var minorityDenialsKind = results.CheckerKind{
	Name: "minority_denials", New: newMinorityDenials, Follows: holdsOnce, Grants: true,
	Doc: "While faults hit only a minority of the deciding servers, a user who asks for a free lock gets it.",
	Counts: []results.Quantity{{
		Name: "minority_denials", Doc: "users that asked for a free lock without success for longer than twice its recovery bound, while faults hit only a minority of the deciding servers; each counts once for a lock",
		Tone: results.Violation, Of: "acquires that ended while faults hit only a minority of the servers",
		NeedsEnds: true,
	}},
	Witnesses: results.Aside("minority_denial"),
}

func newMinorityDenials(run results.Run) results.Checker {
	bound := run.RecoveryBound()
	c := &minorityDenials{
		run: run, bound: bound, heard: users.AllHeard(run), changed: run.Start, asks: map[results.Place]*deniedAsk{},
		vain: vain{run: run, kind: "minority_denial", limit: 2 * bound, most: run.TTL / 4, why: func() string {
			return fmt.Sprintf("it had no holder, and most of the %d servers were untouched; the bound is %.3f ms",
				len(run.Majority.Servers), results.Milli(2*bound))
		}},
	}
	for _, f := range run.Faults {
		if run.Majority != nil && !idleFault(f) {
			c.changes = append(c.changes, f.Start)
			if f.End != 0 {
				c.changes = append(c.changes, f.End)
			}
		}
	}
	slices.Sort(c.changes)
	return c
}

// idleFault reports whether a fault has no effect.
func idleFault(f history.Fault) bool { return f.Traits != nil && f.Traits.Idle }

func (c *minorityDenials) follow(t *tracker) watch {
	c.t = t
	return watch{after: c.after, last: c.end}
}

// Observe takes the next event, before it begins or ends a hold.
func (c *minorityDenials) Observe(e *history.Event) {
	c.last = max(c.last, e.Time)
	for len(c.changes) > 0 && c.changes[0] <= e.Time {
		at := c.changes[0]
		c.changes = c.changes[1:]
		c.lookAt(at, func(results.Place) bool { return true })
		for _, a := range c.asks {
			a.n = 0
		}
		c.changed = at
		c.stand(at)
	}
	if e.Kind == history.Acquire && e.Phase == history.Ok { // the lock is no longer free
		c.lookAt(e.Time, func(p results.Place) bool { return p.Lock == e.Lock })
	}
}

// stand updates the standing faults from t on.
func (c *minorityDenials) stand(t int64) {
	for ; c.next < len(c.run.Faults) && c.run.Faults[c.next].Start <= t; c.next++ {
		c.stands = append(c.stands, c.run.Faults[c.next])
	}
	c.stands = slices.DeleteFunc(c.stands, func(f history.Fault) bool {
		return idleFault(f) || f.End != 0 &&
			f.End <= t
	})
	c.touched, c.broken = nil, nil
	for _, f := range c.stands {
		c.broken = append(c.broken, f.Targets...)
		if f.Traits == nil || f.Traits.AtPeers {
			c.broken = append(c.broken, f.Peers...)
		}
		for _, s := range slices.Concat(f.Targets, f.Peers) {
			if slices.Contains(c.run.Majority.Servers, s) && !slices.Contains(c.touched, s) {
				c.touched = append(c.touched, s)
			}
		}
	}
}

// judges reports whether only a minority is touched, and no fault is on the user's client.
func (c *minorityDenials) judges(u history.User) bool {
	return len(c.touched) > 0 && 2*len(c.touched) < len(c.run.Majority.Servers) &&
		!slices.Contains(c.broken, history.ClientName(u.Client()))
}

// after takes an event after its change of holds.
func (c *minorityDenials) after(e *history.Event) {
	if c.run.Majority == nil {
		return
	}
	if e.Kind == history.Dead {
		maps.DeleteFunc(c.asks, func(p results.Place, _ *deniedAsk) bool { return p.User.Client() == e.User.Client() })
	}
	if e.Kind != history.Acquire {
		return
	}
	p := results.PlaceOf(e)
	a := c.asks[p]
	switch {
	case e.Phase == history.Invoke:
		if a == nil {
			a = &deniedAsk{vainAsk: vainAsk{since: e.Time}}
			c.asks[p] = a
		}
		a.open = *e
	case a == nil || e.Op != a.open.Op:
	default:
		if c.judges(e.User) {
			c.asked++
		}
		if e.Phase == history.Ok {
			delete(c.asks, p)
			return
		}
		a.n++
		c.inVain(p, a, e.Time, e)
		a.open = history.Event{}
	}
}

// inVain takes an acquire without a grant up to t. end is its outcome, or nil.
func (c *minorityDenials) inVain(p results.Place, a *deniedAsk, t int64, end *history.Event) {
	since, free := c.t.freeSince(p.Lock)
	if a.open.Kind == history.KindNone || !c.judges(p.User) || !free {
		return
	}
	from, t := max(c.changed, since, a.since), min(t, c.heard)
	if a.n < fewestDenied && t-max(from, a.open.Time) <= c.bound {
		return
	}
	c.vain.add(p, span{from, t}, a.open, end)
}

// lookAt updates the asking users to t. Mostly the last change was only a moment ago.
func (c *minorityDenials) lookAt(t int64, who func(results.Place) bool) {
	if len(c.touched) == 0 || t-c.changed <= 2*c.bound {
		return
	}
	for p, a := range c.asks {
		if since, _ := c.t.freeSince(p.Lock); who(p) && t-since > 2*c.bound {
			c.inVain(p, a, t, nil)
		}
	}
}

// end takes the users that ask in vain at the end of the history.
func (c *minorityDenials) end(*tracker) {
	dead := users.DeadClients(c.run)
	maps.DeleteFunc(c.asks, func(p results.Place, _ *deniedAsk) bool { return slices.Contains(dead, p.User.Client()) })
	c.lookAt(c.last, func(results.Place) bool { return true })
}

// Finish returns the finding.
func (c *minorityDenials) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	switch {
	case c.run.Majority == nil:
		return f.NotApplicable("the lock is not decided by a majority of servers")
	case c.bound <= 0:
		return f.NotApplicable("neither a recovery bound nor a ttl is known")
	case c.asked == 0 && len(c.vain.found) == 0:
		return f.NotApplicable("no user asked for a lock while faults hit only a minority of the servers")
	}
	return c.vain.judged("minority_denials", c.asked)
}
