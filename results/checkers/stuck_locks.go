// Stuck locks: when users ask for a lock that no living user has in hand, one of them gets it within its recovery
// bound.
//
// The bound is the declared one of the lock, or the scenario's ttl if its grants never expire. Only time during which
// a user asks counts, from an acquire's invoke to its outcome. Only users whose client has no fault count.
//
// stuck_locks counts locks, however often one was stuck. held_beyond_validity_ms is the longest time that users asked
// for a lock while all its holders had outlived their validity. Such a lock, kept for example by a paused client, is
// not stuck by the definition above, and yet no user gets it.
//
// stuck_ms_max ignores the users of clients that are still in their first acquire: a runtime loads the library's code
// then, which takes seconds on a busy machine.
//
// A lock with several permits is free while fewer users have it in hand than it has permits.
//
// It cannot see a lock that is stuck while no user asks for it. It does not distinguish a lock that stays taken from
// a service that is down: a fault that outlasts the bound shows here too, and its witness says so.

package checkers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type stuckLocks struct {
	run     results.Run
	bound   int64
	permits int   // how many users may have a lock in hand at once
	heard   int64 // all holds are known until then
	clocks  results.Clocks
	worst   int64 // ns: the largest error of a request's time so far; holders have asked, too
	t       *tracker
	asks    *asks
	locks   []stuckLock
	list    evidence.Shortlist
	last    int64
	stuck   []waiting
	longest []results.Span // the longest waits, the longest first
	outlast results.Span   // the longest time asked while no holder was entitled
	holds   int64
}

// maxLongest is how many waits are kept. A shorter one may be the longest without the standstills in it.
const maxLongest = 16

// waiting is a time beyond the bound in which users asked for a lock in vain.
type waiting struct {
	lock   uint16
	span   span
	waited int64
}

// maxInside is the maximum of a lock's open holds that are checked for entitlement.
const maxInside = 64

type stuckLock struct {
	seen   int64         // the lock's state is known up to here
	wait   results.Span  // time asked in vain since the last grant, with no holder
	warm   results.Span  // the same, of users with a warm client
	beyond results.Span  // time asked since the last grant while no holder was entitled
	ended  history.Event // what ended the latest hold
	asked  history.Event // the first acquire since then
}

// lengthen adds a time to a span; an empty one begins with it.
func lengthen(s *results.Span, from, to int64) {
	if s.Length == 0 {
		s.From = from
	}
	s.To, s.Length = to, s.Length+to-from
}

var stuckLocksKind = results.CheckerKind{
	Name: "stuck_locks", New: newStuckLocks, Follows: holdsOnce, Grants: true,
	Doc: "A lock without a living holder that users ask for is granted within its recovery bound.",
	Counts: []results.Quantity{
		{
			Name: "stuck_locks", Doc: "locks that users asked for and that had no holder for longer than their recovery bound; each counts once",
			Tone: results.Violation, Of: "grants", First: 8, Column: "stuck", NeedsEnds: true,
		},
	},
	Measures: []results.Quantity{
		{Name: "stuck_ms_max", Doc: "the longest time that users asked for a lock without a holder; the first acquire of each client is left out"},
		{
			Name: "held_beyond_validity_ms",
			Doc:  "the longest time that users asked for a lock while all its holders had outlived their validity: such a lock is taken, not stuck",
		},
	},
	Witnesses: results.Aside("stuck_lock"),
}

func newStuckLocks(run results.Run) results.Checker {
	c := &stuckLocks{
		run: run, bound: run.RecoveryBound(), permits: max(1, run.Permits), heard: users.AllHeard(run),
		clocks: run.Clocks(), locks: make([]stuckLock, len(run.Locks)),
	}
	c.asks = newAsks(run, c, true)
	return c
}

func (c *stuckLocks) follow(t *tracker) watch {
	c.t = t
	return watch{began: c.began, ended: c.ended, last: c.end}
}

// Observe takes the next event.
func (c *stuckLocks) Observe(e *history.Event) {
	c.last = e.Time
	c.asks.observe(e)
	switch e.Kind {
	case history.Renew, history.Reenter, history.Renewed, history.Ended, history.Release, history.Lost,
		history.Dead: // before the holds change
		c.touch(e.Lock, e.Time)
		for i := 0; i < len(c.locks) && e.Grant == 0; i++ { // for all locks that the user has
			c.touch(uint16(i), e.Time)
		}
	default:
	}
	if e.Kind == history.Acquire {
		l := c.lock(e.Lock)
		c.touch(e.Lock, e.Time)
		c.worst = max(c.worst, c.clocks.Late(e.User, e.Time)-e.Time)
		if e.Phase == history.Invoke && l.asked.Kind == history.KindNone {
			l.asked = *e
		}
	}
}

func (c *stuckLocks) lock(i uint16) *stuckLock {
	for int(i) >= len(c.locks) {
		c.locks = append(c.locks, stuckLock{})
	}
	return &c.locks[i]
}

// touch adds the time since the last update of the lock, if users asked in vain all the while.
func (c *stuckLocks) touch(lock uint16, t int64) {
	l, open := c.lock(lock), c.t.held(lock)
	asked, warm := c.asks.counts(lock)
	if t > l.seen && asked && len(open) > 0 {
		lengthen(&l.beyond, t-beyond(open, l.seen, t), t)
		if l.beyond.Length > c.outlast.Length {
			c.outlast = l.beyond
		}
	}
	if until := min(t, c.heard); until > l.seen && asked && len(open) < c.permits {
		lengthen(&l.wait, l.seen, until)
		if warm {
			lengthen(&l.warm, l.seen, until)
		}
	}
	l.seen = max(l.seen, t)
}

// beyond returns for how much of [from, t) none of the holds was entitled.
func beyond(open []*hold, from, t int64) int64 {
	for _, h := range open[:min(len(open), maxInside)] {
		if h.valid == history.ValidUnknown && len(h.spans) == 0 {
			return 0 // unknown
		}
		if from = max(from, h.latest(h.until())); from >= t {
			return 0
		}
	}
	return t - from
}

func (c *stuckLocks) began(h *hold) {
	c.holds++
	c.lock(h.lock).beyond = results.Span{}
	c.over(h.lock, h.start, &h.ok)
	c.lock(h.lock).asked.Kind = history.KindNone
}

func (c *stuckLocks) ended(h *hold) {
	l := c.lock(h.lock)
	l.ended, l.seen = h.over, max(l.seen, min(h.end, c.heard)) // locks held by a lost client were not free until then
}

// over ends a wait, by a grant or, if ok is nil, by the end of the run.
func (c *stuckLocks) over(lock uint16, t int64, ok *history.Event) {
	l := c.lock(lock)
	w := l.warm
	if n := len(c.longest); w.Length > 0 && (n < maxLongest || w.Length > c.longest[n-1].Length) {
		c.longest = append(c.longest, w)
		slices.SortStableFunc(c.longest, func(a, b results.Span) int { return cmp.Compare(b.Length, a.Length) })
		c.longest = c.longest[:min(n+1, maxLongest)]
	}
	if w := l.wait; w.Length > c.bound+2*c.worst && c.bound > 0 {
		c.stuck = append(c.stuck, waiting{lock, span{w.From, w.To}, w.Length})
		c.keep(lock, t, ok)
	}
	l.wait, l.warm = results.Span{}, results.Span{}
}

func (c *stuckLocks) keep(lock uint16, to int64, ok *history.Event) {
	l := c.lock(lock)
	w := l.wait
	rank := int(w.Length / 1e6)
	if !c.list.Wants(rank) {
		return
	}
	text := fmt.Sprintf("%s: users asked for %.3f ms from %s to %s; it had no holder and was not granted; the bound is %.3f ms",
		c.run.LockName(lock), results.Milli(w.Length), c.run.MS(w.From), c.run.MS(to), results.Milli(c.bound))
	for _, f := range c.run.Faults {
		if f.Start < to && (f.End == 0 || f.End > w.From) {
			text += fmt.Sprintf("; %s on %s stood then", f.Name, f.Target)
		}
	}
	p := evidence.Proof{Kind: "stuck_lock", From: w.From, To: to, Rank: rank, Text: func() string { return text }}
	for _, e := range []history.Event{l.ended, l.asked} {
		if e.Kind != history.KindNone {
			p.Events = append(p.Events, e)
		}
	}
	if ok != nil {
		p.Events = append(p.Events, *ok)
	}
	c.list.Add(p)
}

// decide returns the locks that were stuck. It excuses a lock if processes stood still for longer than the wait
// exceeded the bound: one of them may have been granted the lock.
func (c *stuckLocks) decide() (stuck map[uint16]bool, l *results.Ledger) {
	stuck, l = map[uint16]bool{}, results.NewLedger()
	why := map[uint16]results.Standstill{}
	for _, w := range c.stuck {
		x := c.run.Still.Worst(w.span.from, w.span.until)
		excused := c.run.Still.Delay(w.span.from, w.span.until, results.AnyProcess) > w.waited-c.bound
		stuck[w.lock] = stuck[w.lock] || !excused
		if excused {
			why[w.lock] = x
		}
	}
	for _, lock := range slices.Sorted(maps.Keys(why)) { // the first one is named
		if !stuck[lock] {
			l.Add(c.run, lock, 1, why[lock], true)
		}
	}
	return stuck, l
}

// end ends the waits at the end of the history.
func (c *stuckLocks) end(*tracker) {
	for i := range c.locks {
		c.touch(uint16(i), c.last)
		c.over(uint16(i), c.last, nil)
	}
}

// Finish returns the finding.
func (c *stuckLocks) Finish() results.Finding {
	stuck, l := c.decide()
	n := int64(len(stuck))
	f := results.Finding{Verdict: results.VerdictOf(n)}
	if c.bound <= 0 {
		f = f.NotApplicable("neither a recovery bound nor a ttl is known")
		f.Measures = map[string]*float64{"stuck_ms_max": nil, "held_beyond_validity_ms": nil}
		return f
	}
	f.Counts = map[string]*int64{"stuck_locks": new(n)}
	f.Chances = map[string]results.Chances{"stuck_locks": {N: c.holds}}
	f.Measures = map[string]*float64{
		"stuck_ms_max":            new(results.Milli(append(c.longest, results.Span{})[0].Length)), // 0: no wait
		"held_beyond_validity_ms": new(results.Milli(c.outlast.Length)),
	}
	f.Spans = map[string][]results.Span{"stuck_ms_max": c.longest, "held_beyond_validity_ms": {c.outlast}}
	l.Into(&f, "stuck_locks")
	f.Witnesses = c.list.Witnesses(c.run)
	return f
}
