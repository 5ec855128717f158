// Unavailability: how long nobody got a lock that somebody asked for, through a fault and until recovery.
//
// For each lock, the longest time without a grant during which somebody asked: counted from the fault's start, or from
// the last grant where that is later, to the next grant, until the first grant after the heal. The run's figure is the
// longest of all locks and faults. Time that a holder spends inside counts: those who wait do not care why.
//
// It cannot see an outage during which nobody asked, and without a fault it judges nothing: see longest_wait_ms.

package results

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lockquake/lockquake/history"
)

type unavailability struct {
	run   Run
	asks  *asks
	locks []availableLock
	worst []outage
	last  int64
	many  bool // more faults stood on one lock than are followed
}

// outage is what one fault did.
type outage struct {
	asked   bool
	longest int64
}

// maxStanding bounds the faults that stand on a lock although it was granted since.
const maxStanding = 128

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

func newUnavailability(run Run) Checker {
	c := &unavailability{run: run, locks: make([]availableLock, len(run.Locks)), worst: make([]outage, len(run.Faults))}
	c.asks = newAsks(run, c, false)
	return c
}

// touch adds the time since the lock was last looked at, if somebody asked, and begins the faults since.
func (c *unavailability) touch(lock uint16, t int64) {
	for int(lock) >= len(c.locks) {
		c.locks = append(c.locks, availableLock{})
	}
	l := &c.locks[lock]
	b := begun{first: l.next, from: l.seen, asked: l.asked, asking: int(lock) < len(c.asks.asking) && c.asks.asking[lock] > 0}
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
		c.granted(&c.locks[e.Lock], e.Time)
	}
}

// granted closes the gap of a lock in every fault that it has not recovered from.
func (c *unavailability) granted(l *availableLock, t int64) {
	open := l.faults[:0]
	close := func(w window) {
		c.gap(l, w)
		switch end := c.run.Faults[w.fault].End; {
		case end != 0 && t >= end:
		case len(open) == maxStanding:
			c.many = true
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

func (c *unavailability) gap(l *availableLock, w window) {
	o := &c.worst[w.fault]
	if n := l.asked - max(w.asked, l.grant); n > 0 {
		o.asked = true
		o.longest = max(o.longest, n)
	}
}

// unfit is what the name of a measure cannot have.
var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// Finish returns the finding.
func (c *unavailability) Finish() Finding {
	for i := range c.locks {
		if l := &c.locks[i]; l.used {
			c.touch(uint16(i), c.last)
			c.granted(l, c.last) // nothing comes any more
			*l = availableLock{}
		}
	}
	f := Finding{Checker: "unavailability", Verdict: Clean, Measures: map[string]*float64{"unavailability_ms_max": nil}}
	longest, asked := int64(0), false
	for i, o := range c.worst {
		name := strings.Trim(unfit.ReplaceAllString(strings.ToLower(c.run.Faults[i].Name), "_"), "_")
		name = fmt.Sprintf("unavailability_ms_%s_%d", name, c.run.Faults[i].ID)
		f.Measures[name] = nil
		if o.asked {
			asked = true
			longest = max(longest, o.longest)
			f.Measures[name] = measure(milli(o.longest))
		}
	}
	if c.many {
		for name := range f.Measures {
			f.Measures[name] = nil
		}
		f.Verdict, f.Warnings = Unknown, []string{fmt.Sprintf("more than %d faults stood at once: how long nobody got a lock is not told", maxStanding)}
		return f
	}
	if !asked {
		f.Verdict, f.Skipped = Unknown, "nobody asked for a lock while a fault stood"
		return f
	}
	f.Measures["unavailability_ms_max"] = measure(milli(longest))
	return f
}
