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
	next  int // the next fault to begin
	worst []outage
	last  int64
}

// outage is what one fault did.
type outage struct {
	asked   bool
	longest int64
}

type availableLock struct {
	seen   int64
	asked  int64 // how long somebody asked so far
	grant  int64 // what asked was at the last grant
	faults []window
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

// touch adds the time since the lock was last looked at, if somebody asked.
func (c *unavailability) touch(lock uint16, t int64) {
	for int(lock) >= len(c.locks) {
		c.locks = append(c.locks, availableLock{})
	}
	l := &c.locks[lock]
	if t > l.seen && int(lock) < len(c.asks.asking) && c.asks.asking[lock] > 0 {
		l.asked += t - l.seen
	}
	l.seen = max(l.seen, t)
}

// Observe takes the next event.
func (c *unavailability) Observe(e *history.Event) {
	for c.next < len(c.run.Faults) && c.run.Faults[c.next].Start <= e.Time {
		for i := range c.locks {
			c.touch(uint16(i), c.run.Faults[c.next].Start)
			c.locks[i].faults = append(c.locks[i].faults, window{c.next, c.locks[i].asked})
		}
		c.next++
	}
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
	for _, w := range l.faults {
		c.gap(l, w)
		if end := c.run.Faults[w.fault].End; end == 0 || t < end {
			open = append(open, w)
		}
	}
	l.faults = open
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
		c.touch(uint16(i), c.last)
		for _, w := range c.locks[i].faults {
			c.gap(&c.locks[i], w)
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
	if !asked {
		f.Verdict, f.Skipped = Unknown, "nobody asked for a lock while a fault stood"
		return f
	}
	f.Measures["unavailability_ms_max"] = measure(milli(longest))
	return f
}
