// Unavailability: how long a requested lock could not be taken, through a fault and until recovery.
//
// It is, for each lock, the longest time without a grant during which users asked. It counts from the fault's start,
// or from a later last grant, to the next grant, until the first grant after the heal. The run's figure is the
// longest of all locks and faults. Next to it is the number of locks that were unavailable for at least half as long.
// Time with a holder inside counts: waiting users do not care why. outages explains why a lock could not be taken.
//
// It cannot see an outage during which no user asked, and without a fault it judges nothing: see longest_wait_ms.

package checkers

import (
	"fmt"
	"strconv"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type unavailability struct {
	run   results.Run
	asks  *asks
	locks []availableLock
	outs  outages
	worst []outage
	last  int64
	many  string         // number of faults, if they are too many to judge
	looks evidence.Looks // pairs of a lock and a fault
}

// outage is the effect of one fault.
type outage struct {
	asked   bool
	longest int64
}

const (
	// maxActive bounds the tracked faults of one lock that was granted since.
	maxActive = 128
	// maxFaultLooks bounds the comparisons of a lock with a fault.
	maxFaultLooks = 1 << 24
)

type availableLock struct {
	used   bool
	seen   int64
	asked  int64   // time in which users asked so far
	grant  int64   // value of asked at the last grant
	next   int     // the next fault to begin
	begun  []begun // since the last grant
	faults []window
}

// begun are faults that began between two updates of a lock.
type begun struct {
	first, next int   // indexes among the run's faults
	from        int64 // the time of the first update
	asked       int64 // value of the lock's asked then
	asking      bool  // whether users asked from then on
}

// at returns the value of the lock's asked at a fault's start.
func (b begun) at(start int64) int64 {
	if b.asking {
		return b.asked + max(0, start-b.from)
	}
	return b.asked
}

// window is a fault that a lock has not recovered from.
type window struct {
	fault int
	asked int64 // value of the lock's asked at the fault's start
}

// perFault is the prefix of the measures of single injections.
const perFault = "unavailability_ms"

var unavailabilityKind = results.CheckerKind{
	Name: "unavailability", New: newUnavailability, PerFault: perFault, Grants: true,
	Doc: "How long a requested lock could not be taken, during a fault and until recovery; also for each fault.",
	Measures: []results.Quantity{
		{Name: "unavailable_locks", Doc: "locks that could not be taken for at least half of `unavailability_ms_max`"},
		{
			Name:  "unavailability_ms_max",
			Doc:   "the longest time that a requested lock could not be taken, during a fault and until recovery; `unavailability_ms_FAULT_N` is the same for one injection",
			First: 2,
		},
	},
	Witnesses: []results.WitnessKind{{Name: "unavailability", Draw: results.DrawGap}},
}

func newUnavailability(run results.Run) results.Checker {
	c := &unavailability{
		run: run, locks: make([]availableLock, len(run.Locks)), worst: make([]outage, len(run.Faults)),
		looks: evidence.Looks{Most: maxFaultLooks},
	}
	c.asks = newAsks(run, c, false)
	c.outs.run, c.outs.lost = run, users.LostClients(run)
	return c
}

// touch adds the time since the last update of the lock, if users asked, and adds the faults that began since.
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

// granted closes the gap of a lock for every fault that it has not recovered from.
func (c *unavailability) granted(l *availableLock, lock uint16, t int64) {
	if c.many != "" {
		return
	}
	open := l.faults[:0]
	close := func(w window) {
		if !c.looks.Take(1) {
			c.many = "there were too many locks and faults to compare each lock with each fault"
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

// gap returns how long users asked for the lock in vain since the fault began.
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
			c.granted(l, uint16(i), c.last) // no more events follow
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
		f.Verdict, f.Warnings = results.Unknown, []string{c.many + ": its unavailability was not measured"}
		return f
	}
	if !asked {
		f.Verdict, f.Skipped = results.Unknown, "no user asked for a lock during a fault"
		return f
	}
	f.Measures["unavailability_ms_max"] = new(results.Milli(longest))
	n, w := c.outs.witness()
	locks := float64(n)
	f.Measures["unavailable_locks"] = &locks
	f.Witnesses = []results.Witness{w}
	return f
}
