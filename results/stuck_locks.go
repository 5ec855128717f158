// Stuck locks: when users ask for a lock that nobody alive has in hand, somebody gets it within its recovery bound.
//
// The bound is the one that the lock declares; where its grants never expire, the scenario's ttl. Only time during which
// somebody asks counts, from an acquire's invoke to its outcome, and only users whose client no fault stands on.
//
// It cannot see a lock that is stuck while nobody asks for it, and does not tell a lock that stays taken from a service
// that is down: a fault that outlasts the bound shows here too, and its witness says so.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

type stuckLocks struct {
	run   Run
	bound int64
	t     *tracker
	asks  *asks
	locks []stuckLock
	list  shortlist
	last  int64
}

type stuckLock struct {
	seen    int64 // the lock's state is known up to here
	since   int64 // when the present waiting began; 0 for none
	waited  int64 // how long somebody asked in vain since the last grant, with nobody inside
	stuck   bool
	longest int64
	ended   history.Event // what ended the latest hold
	asked   history.Event // the first acquire since then
}

func newStuckLocks(run Run) Checker {
	c := &stuckLocks{run: run, bound: run.bound(), locks: make([]stuckLock, len(run.Locks)), list: shortlist{room: MaxWitnesses}}
	c.t = newTracker(run, c)
	c.asks = newAsks(run, c, true)
	return c
}

// bound is how long a lock may stay without a grant after its holder is gone.
func (r Run) bound() int64 {
	if r.Expires && r.Recovery > 0 {
		return r.Recovery
	}
	return r.TTL
}

// Observe takes the next event.
func (c *stuckLocks) Observe(e *history.Event) {
	c.last = e.Time
	c.asks.observe(e)
	if e.Kind == history.Acquire {
		l := c.lock(e.Lock)
		c.touch(e.Lock, e.Time)
		if e.Phase == history.Invoke && l.asked.Kind == history.KindNone {
			l.asked = *e
		}
	}
	c.t.observe(e)
}

func (c *stuckLocks) lock(i uint16) *stuckLock {
	for int(i) >= len(c.locks) {
		c.locks = append(c.locks, stuckLock{})
	}
	return &c.locks[i]
}

// touch adds the time since the lock was last looked at, if somebody asked in vain all the while.
func (c *stuckLocks) touch(lock uint16, t int64) {
	l := c.lock(lock)
	inside := int(lock) < len(c.t.locks) && len(c.t.locks[lock]) > 0
	asked := int(lock) < len(c.asks.asking) && c.asks.asking[lock] > 0
	if t > l.seen && asked && !inside {
		if l.waited == 0 {
			l.since = l.seen
		}
		l.waited += t - l.seen
	}
	l.seen = max(l.seen, t)
}

func (c *stuckLocks) began(h *hold) {
	c.over(h.lock, h.start, &h.ok)
	c.lock(h.lock).asked.Kind = history.KindNone
}

func (c *stuckLocks) takenBack(*hold, int64) {}

func (c *stuckLocks) ended(h *hold) {
	// The hold is out of the list already: what lies before was not waited in vain.
	l := c.lock(h.lock)
	l.seen = max(l.seen, c.last)
	l.ended = h.over
}

// over ends a wait, by a grant or, where ok is nil, by the end of the run.
func (c *stuckLocks) over(lock uint16, t int64, ok *history.Event) {
	l := c.lock(lock)
	l.longest = max(l.longest, l.waited)
	if l.waited > c.bound && c.bound > 0 {
		l.stuck = true
		c.keep(lock, t, ok)
	}
	l.waited, l.since = 0, 0
}

func (c *stuckLocks) keep(lock uint16, to int64, ok *history.Event) {
	l := c.lock(lock)
	rank := int(l.waited / 1e6)
	if !c.list.wants(rank) {
		return
	}
	text := fmt.Sprintf("%s: users asked for %.3f ms from %s to %s, nobody had it in hand and nobody got it; the bound is %.3f ms",
		lockName(c.run, lock), milli(l.waited), c.run.ms(l.since), c.run.ms(to), milli(c.bound))
	for _, f := range c.run.Faults {
		if f.Start < to && (f.End == 0 || f.End > l.since) {
			text += fmt.Sprintf("; %s on %s stood then", f.Name, f.Target)
		}
	}
	p := proof{kind: "stuck_lock", from: l.since, to: to, rank: rank, text: func() string { return text }}
	for _, e := range []history.Event{l.ended, l.asked} {
		if e.Kind != history.KindNone {
			p.events = append(p.events, e)
		}
	}
	if ok != nil {
		p.events = append(p.events, *ok)
	}
	c.list.add(p)
}

// Finish returns the finding.
func (c *stuckLocks) Finish() Finding {
	var n, longest int64
	for i := range c.locks {
		c.touch(uint16(i), c.last)
		c.over(uint16(i), c.last, nil)
		longest = max(longest, c.locks[i].longest)
		if c.locks[i].stuck {
			n++
		}
	}
	f := Finding{Checker: "stuck_locks", Verdict: verdictOf(n)}
	if c.bound <= 0 {
		f = skipped(f, "neither a recovery bound nor a ttl is known", []string{"stuck_locks"})
		f.Measures = map[string]*float64{"stuck_ms_max": nil}
		return f
	}
	f.Counts = map[string]*int64{"stuck_locks": count(n)}
	f.Measures = map[string]*float64{"stuck_ms_max": measure(milli(longest))}
	f.Witnesses = c.list.witnesses(c.run)
	return f
}
