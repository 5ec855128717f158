// Wedges: a lock object that was in trouble can be used again.
//
// A user asks in vain when the lock is free for it: no user has it in hand, no fault stands, and the last one ended a
// recovery bound ago. Another user must also have been granted a lock since then, which proves that the service
// serves. A user is wedged if it asks in vain for longer than the bound, by one acquire or by several without a grant
// between them. A run without faults counts from its start.
//
// Example: the bound is 2 s, and a cut of A ends at 10 s. B is granted the lock at 10.1 s and releases it. A asks at
// 13 s and gets an error at once, and the same at 16 s: it is wedged, because others get the lock.
//
// It cannot see a lock object that is not used again, nor later renewals and releases after the grant. It ignores
// users that wait while others hold the lock: these may be starved.

package checkers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type wedges struct {
	run     results.Run
	bound   int64
	heard   int64 // all holds are known until then
	t       *tracker
	faults  []history.Fault                      // that have not begun yet
	healed  int64                                // when the last fault ended; the start without one
	granted [2]grantSeen                         // the first grants of two users since then
	asks    map[uint16]map[history.User]*vainAsk // by lock
	dead    map[int]bool                         // clients: their users no longer ask
	looks   evidence.Looks                       // comparisons with users that ask for what another gets
	asked   int64
	longest int64
	vain    vain
	last    int64
}

type grantSeen struct {
	user history.User
	at   int64 // 0: none
}

// maxAskLooks bounds the comparisons of a grant with users that ask for its lock. Beyond it the count is a lower
// bound.
const maxAskLooks = 1 << 23

var wedgesKind = results.CheckerKind{
	Name: "wedges", New: newWedges, Follows: holdsOnce, Grants: true,
	Doc: "After a fault, a user's lock object works again: the user gets the lock when it is free.",
	Counts: []results.Quantity{
		{
			Name: "wedges", Doc: "users that asked for a free lock without success for longer than its recovery bound, after all faults had been over for that long and while others were granted locks; each counts once for a lock",
			Tone: results.Violation, Of: "acquires that ended later than the recovery bound after the last fault", NeedsEnds: true,
		},
	},
	Measures: []results.Quantity{
		{Name: "wedge_ms_max", Doc: "the longest time that a user asked for a free lock without success, after all faults had been over for the recovery bound and while others were granted locks"},
	},
	Witnesses: results.Aside("wedge"),
}

func newWedges(run results.Run) results.Checker {
	bound := run.RecoveryBound()
	return &wedges{
		run: run, bound: bound, heard: users.AllHeard(run), faults: withHeld(run), healed: run.Start,
		asks: map[uint16]map[history.User]*vainAsk{}, dead: map[int]bool{}, looks: evidence.Looks{Most: maxAskLooks},
		vain: vain{run: run, kind: "wedge", limit: bound, most: results.Forever, why: func() string {
			return fmt.Sprintf("it had no holder, all faults were over, and others were granted locks; the bound is %.3f ms",
				results.Milli(bound))
		}},
	}
}

func (c *wedges) follow(t *tracker) watch {
	c.t = t
	return watch{began: c.began, after: c.after, last: c.end}
}

// Observe takes the next event, before it begins or ends a hold.
func (c *wedges) Observe(e *history.Event) {
	c.pass(e.Time)
	c.last = max(c.last, e.Time)
	if e.Kind == history.Acquire && e.Phase == history.Ok {
		c.overtaken(e)
	}
}

// after takes an event after its change of holds.
func (c *wedges) after(e *history.Event) {
	if e.Kind == history.Dead {
		c.dead[e.User.Client()] = true
	}
	if e.Kind != history.Acquire || c.dead[e.User.Client()] {
		return
	}
	a := c.ask(e.User, e.Lock)
	switch {
	case e.Phase == history.Invoke:
		if a.open = *e; a.since == 0 {
			a.since = e.Time
		}
	case e.Op != a.open.Op:
	case e.Phase == history.Ok:
		c.count()
		*a = vainAsk{}
	default:
		c.count()
		c.inVain(results.PlaceOf(e), a, e.Time, e)
		if from, free := c.freeFor(e.User, e.Lock); !free || a.open.Time < from { // there was a reason for the failure
			a.since = 0
		}
		a.open = history.Event{}
	}
}

// ask returns the state of a user and a lock that it asks for.
func (c *wedges) ask(u history.User, lock uint16) *vainAsk {
	users := c.asks[lock]
	if users == nil {
		users = map[history.User]*vainAsk{}
		c.asks[lock] = users
	}
	if users[u] == nil {
		users[u] = &vainAsk{}
	}
	return users[u]
}

// asking reports whether a user's acquire is in progress.
func (c *wedges) asking(u history.User, a *vainAsk) bool {
	return a.open.Kind != history.KindNone && !c.dead[u.Client()]
}

// withHeld adds to the faults, in the order of their start, the times in which steps held users: a held user asks in
// vain.
func withHeld(run results.Run) []history.Fault {
	out := slices.Clone(run.Faults)
	for _, h := range run.Held() {
		out = append(out, history.Fault{Start: h.From, End: h.To, Targets: []string{h.Process}})
	}
	slices.SortStableFunc(out, func(a, b history.Fault) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// pass takes the faults that begin and end up to t.
func (c *wedges) pass(t int64) {
	for len(c.faults) > 0 && c.faults[0].Start <= t {
		f := c.faults[0]
		c.faults = c.faults[1:]
		if f.End == 0 {
			f.End = results.Forever
		}
		if f.Traits == nil || !f.Traits.Idle {
			c.healed, c.granted = max(c.healed, f.End), [2]grantSeen{}
		}
	}
}

// idle returns since when no user has had a lock in hand and nothing was broken; free is false if that is not so now.
func (c *wedges) idle(lock uint16) (from int64, free bool) {
	since, free := c.t.freeSince(lock)
	if !free || c.healed == results.Forever {
		return 0, false
	}
	from = c.healed + c.bound
	if len(c.run.Faults) == 0 {
		from = c.healed
	}
	return max(from, since), true
}

// freeFor returns since when a user could have been granted a lock; free is false if it still cannot.
func (c *wedges) freeFor(u history.User, lock uint16) (from int64, free bool) {
	if from, free = c.idle(lock); !free {
		return 0, false
	}
	for _, g := range c.granted {
		if g.at != 0 && g.user != u {
			return max(from, g.at), true
		}
	}
	return 0, false
}

// count counts the end of an acquire as a chance.
func (c *wedges) count() {
	if c.healed != results.Forever && c.last >= c.healed+c.bound {
		c.asked++
	}
}

// inVain takes an acquire that did not get a free lock up to t. end is its outcome, or nil.
func (c *wedges) inVain(p results.Place, a *vainAsk, t int64, end *history.Event) {
	from, free := c.freeFor(p.User, p.Lock)
	from, t = max(from, a.since), min(t, c.heard)
	if !free || t <= from {
		return
	}
	c.longest = max(c.longest, t-from)
	c.vain.add(p, span{from, t}, a.open, end)
}

// overtaken takes a grant: other users that asked for that lock did so in vain up to now. Mostly the lock was free
// for so short a time that no wait becomes the longest.
func (c *wedges) overtaken(e *history.Event) {
	from, free := c.idle(e.Lock)
	if waited := e.Time - from; !free || waited <= c.bound && waited <= c.longest {
		return
	}
	for u, a := range c.asks[e.Lock] {
		if !c.looks.Take(1) {
			return
		}
		if u != e.User && c.asking(u, a) {
			c.inVain(results.Place{User: u, Lock: e.Lock}, a, e.Time, nil)
		}
	}
}

// began records a grant that proves that the service serves.
func (c *wedges) began(h *hold) {
	if h.issued < c.healed {
		return
	}
	for i := range c.granted {
		if g := &c.granted[i]; g.at == 0 || g.user == h.user {
			if g.at == 0 {
				*g = grantSeen{h.user, h.start}
			}
			return
		}
	}
}

// end takes the users that ask in vain at the end of the history.
func (c *wedges) end(*tracker) {
	for _, client := range users.DeadClients(c.run) {
		c.dead[client] = true
	}
	for lock, users := range c.asks {
		for u, a := range users {
			if c.asking(u, a) {
				c.inVain(results.Place{User: u, Lock: lock}, a, c.last, nil)
			}
		}
	}
}

// Finish returns the finding.
func (c *wedges) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	if c.bound <= 0 {
		return f.NotApplicable("neither a recovery bound nor a ttl is known")
	}
	f = c.vain.judged("wedges", c.asked)
	f.Measures = map[string]*float64{"wedge_ms_max": new(results.Milli(c.longest))}
	c.looks.Bound(&f, int64(len(c.vain.found)), "too many users ask for one lock at once to compare all of them with each grant: the count is a lower bound")
	return f
}
