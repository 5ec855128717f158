// Unavailability: how long a lock could not be taken that somebody asked for, through a fault and until recovery.
//
// It is, for each lock, the longest time without a grant during which somebody asked: counted from the fault's
// start, or from the last grant where that is later, to the next grant, until the first grant after the heal. The
// run's figure is the longest of all locks and faults. Beside it stands the number of locks that were unavailable
// for at least half as long. Time that a holder spends inside counts: those who wait do not care why. Why a lock
// could not be taken is told by outages.
//
// It cannot see an outage during which nobody asked, and without a fault it judges nothing: see longest_wait_ms.

package checkers

import (
	"fmt"
	"strconv"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type unavailability struct {
	run   results.Run
	asks  *asks
	locks []availableLock
	outs  outages
	worst []outage
	last  int64
	many  string // why nothing can be told: so many faults there were
	looks looks  // at a lock and a fault
}

// outage is what one fault did.
type outage struct {
	asked   bool
	longest int64
}

const (
	// maxActive bounds the faults that are followed for one lock, although it was granted since.
	maxActive = 128
	// maxFaultLooks bounds how often a lock is held against a fault.
	maxFaultLooks = 1 << 24
)

type availableLock struct {
	used   bool
	seen   int64
	asked  int64   // how long somebody asked so far
	grant  int64   // what asked was at the last grant
	next   int     // the next fault to begin
	begun  []begun // since the last grant
	faults []window
}

// begun is faults that began between two looks at a lock.
type begun struct {
	first, next int   // by their places in the run
	from        int64 // the time of the first look
	asked       int64 // what the lock's asked was then
	asking      bool  // whether somebody asked from then on
}

// at returns what the lock's asked was at a fault's start.
func (b begun) at(start int64) int64 {
	if b.asking {
		return b.asked + max(0, start-b.from)
	}
	return b.asked
}

// window is a fault that a lock has not recovered from.
type window struct {
	fault int
	asked int64 // what the lock's asked was at the fault's start
}

// perFault is what the names of the measures of single injections begin with.
const perFault = "unavailability_ms"

var unavailabilityKind = results.CheckerKind{
	Name: "unavailability", New: newUnavailability, PerFault: perFault, Grants: true,
	Doc: "How long nobody got a lock that somebody asked for, through a fault and until recovery; for each fault too.",
	Measures: []results.Quantity{
		{Name: "unavailable_locks", Doc: "locks that could not be taken for at least half of `unavailability_ms_max`"},
		{
			Name:  "unavailability_ms_max",
			Doc:   "the longest time that one lock could not be taken though somebody asked, during a fault and until recovery; `unavailability_ms_FAULT_N` is the same for one injection",
			First: 2,
		},
	},
	Witnesses: []results.WitnessKind{{Name: "unavailability", Draw: results.DrawGap}},
}

func newUnavailability(run results.Run) results.Checker {
	c := &unavailability{
		run: run, locks: make([]availableLock, len(run.Locks)), worst: make([]outage, len(run.Faults)),
		looks: looks{most: maxFaultLooks},
	}
	c.asks = newAsks(run, c, false)
	c.outs.run, c.outs.lost = run, users.LostClients(run)
	return c
}

// touch adds the time since the lock was last looked at, if somebody asked, and begins the faults since.
func (c *unavailability) touch(lock uint16, t int64) {
	for int(lock) >= len(c.locks) {
		c.locks = append(c.locks, availableLock{})
	}
	l := &c.locks[lock]
	b := begun{first: l.next, from: l.seen, asked: l.asked, asking: int(lock) < len(c.asks.asking) &&
		c.asks.asking[lock] > 0}
	for l.next < len(c.run.Faults) && c.run.Faults[l.next].Start <= t {
		l.next++
	}
	if b.next = l.next; b.first < b.next {
		l.begun = append(l.begun, b)
	}
	l.asked, l.used = b.at(t), true
	l.seen = max(l.seen, t)
}

// Observe takes the next event.
func (c *unavailability) Observe(e *history.Event) {
	c.last = e.Time
	c.asks.observe(e)
	if e.Kind == history.Acquire && e.Phase == history.Ok {
		c.touch(e.Lock, e.Time)
		c.outs.next = e.User
		c.granted(&c.locks[e.Lock], e.Lock, e.Time)
	}
	c.outs.observe(e)
}

// granted closes the gap of a lock in every fault that it has not recovered from.
func (c *unavailability) granted(l *availableLock, lock uint16, t int64) {
	if c.many != "" {
		return
	}
	open := l.faults[:0]
	close := func(w window) {
		if !c.looks.take(1) {
			c.many = "there were too many locks and faults to hold each lock against each fault"
			return
		}
		if n := c.gap(l, w); n > 0 {
			c.outs.add(lock, n, c.run.Faults[w.fault].Start, t)
		}
		switch end := c.run.Faults[w.fault].End; {
		case end != 0 && t >= end:
		case len(open) == maxActive:
			c.many = fmt.Sprintf("more than %d faults stood at once", maxActive)
		default:
			open = append(open, w)
		}
	}
	for _, w := range l.faults {
		close(w)
	}
	for _, b := range l.begun {
		for i := b.first; i < b.next; i++ {
			close(window{i, b.at(c.run.Faults[i].Start)})
		}
	}
	l.faults, l.begun = open, l.begun[:0]
	l.grant = l.asked
}

// gap returns how long somebody asked for the lock in vain since the fault began.
func (c *unavailability) gap(l *availableLock, w window) int64 {
	o := &c.worst[w.fault]
	n := l.asked - max(w.asked, l.grant)
	if n > 0 {
		o.asked = true
		o.longest = max(o.longest, n)
	}
	return n
}

// Finish returns the finding.
func (c *unavailability) Finish() results.Finding {
	for i := range c.locks {
		if l := &c.locks[i]; l.used {
			c.touch(uint16(i), c.last)
			c.granted(l, uint16(i), c.last) // nothing comes any more
			*l = availableLock{}
		}
	}
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{
		"unavailability_ms_max": nil,
		"unavailable_locks":     nil,
	}}
	longest, asked := int64(0), false
	for i, o := range c.worst {
		name := results.FaultMeasure(perFault, c.run.Faults[i].Name, strconv.Itoa(c.run.Faults[i].ID))
		f.Measures[name] = nil
		if o.asked {
			asked = true
			longest = max(longest, o.longest)
			f.Measures[name] = new(results.Milli(o.longest))
		}
	}
	if c.many != "" {
		for name := range f.Measures {
			f.Measures[name] = nil
		}
		f.Verdict, f.Warnings = results.Unknown, []string{c.many + ": how long nobody got a lock is not told"}
		return f
	}
	if !asked {
		f.Verdict, f.Skipped = results.Unknown, "nobody asked for a lock while a fault stood"
		return f
	}
	f.Measures["unavailability_ms_max"] = new(results.Milli(longest))
	n, w := c.outs.witness()
	locks := float64(n)
	f.Measures["unavailable_locks"] = &locks
	f.Witnesses = []results.Witness{w}
	return f
}
