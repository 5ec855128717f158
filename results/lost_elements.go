// Lost elements: every element that was put into a set, and acknowledged, is in it at the end.
//
// Each write replaces the set by what its writer had read and one element more, which its value names. So a set is told by
// the element that was added last: what was read before that write is the set that it was added to, and so on down to the
// empty one. Acknowledged elements that are not met on the way down from the final read are lost.
//
// Acknowledged is what the resource answered to the write, whatever the lock said after. acknowledged_elements is how many
// were, lost_elements_share which part of them is lost.
//
// It cannot see which write took an element away.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

type lostElements struct {
	run    Run
	reads  map[place]int64
	onto   map[element]int64 // what each element was added to
	acked  map[uint16][]history.Event
	finals finals
	added  int
}

// element is one by its name, in the set of a lock.
type element struct {
	lock uint16
	name int64
}

func newLostElements(run Run) Checker {
	return &lostElements{
		run: run, reads: map[place]int64{}, onto: map[element]int64{}, acked: map[uint16][]history.Event{}, finals: finals{},
	}
}

// Observe takes the next event.
func (c *lostElements) Observe(e *history.Event) {
	c.finals.observe(e)
	switch {
	case c.run.Writes != writesElements:
	case e.Kind == history.Read && e.Phase == history.Ok:
		c.reads[placeOf(e)] = e.Value
	case e.Kind == history.Write && e.Phase == history.Invoke:
		c.onto[element{e.Lock, e.Value}] = c.reads[placeOf(e)]
	case e.Kind == history.Write && e.Phase == history.Ok:
		c.added++
		c.acked[e.Lock] = append(c.acked[e.Lock], *e)
	}
}

// Finish returns the finding.
func (c *lostElements) Finish() Finding {
	names := []string{"lost_elements"}
	f, ok := c.run.applies("lost_elements", names, writesElements, c.added, c.finals)
	f.Measures = map[string]*float64{"acknowledged_elements": nil, "lost_elements_share": nil}
	if !ok {
		return f
	}
	var lost, acknowledged int64
	for i := range c.run.Locks {
		lock := uint16(i)
		final, read := c.finals[lock]
		if !read {
			continue
		}
		set, whole := c.set(lock, final.Value)
		if !whole {
			f = skipped(f, "", names)
			f.Warnings = []string{fmt.Sprintf("the set of %s has an element that nobody is known to have added", lockName(c.run, lock))}
			return f
		}
		var gone []history.Event
		for _, e := range c.acked[lock] {
			if !set[e.Value] {
				gone = append(gone, e)
			}
		}
		lost += int64(len(gone))
		f.found(lock, int64(len(gone)))
		acknowledged += int64(len(c.acked[lock]))
		if len(gone) > 0 && len(f.Witnesses) < MaxWitnesses {
			f.Witnesses = append(f.Witnesses, Witness{
				Kind: "lost_element", Lock: lockName(c.run, lock), From: gone[0].Time, To: final.Time,
				Text: fmt.Sprintf("%d of %d elements that were acknowledged under %s are not in the set at the end; the first is that of %v at %s",
					len(gone), len(c.acked[lock]), lockName(c.run, lock), gone[0].User, c.run.ms(gone[0].Time)),
				Events: []history.Event{gone[0], final},
			})
		}
	}
	f.Verdict = verdictOf(lost)
	f.Counts = map[string]*int64{"lost_elements": count(lost)}
	f.Chances = map[string]Chances{"lost_elements": {acknowledged, acknowledgedWrites}}
	f.Measures["acknowledged_elements"] = measure(float64(acknowledged))
	if acknowledged > 0 {
		f.Measures["lost_elements_share"] = measure(float64(lost) / float64(acknowledged))
	}
	return f
}

// set walks down from the element that was added last; whole is false where it meets one that nobody added.
func (c *lostElements) set(lock uint16, last int64) (set map[int64]bool, whole bool) {
	set = map[int64]bool{}
	for last != 0 && !set[last] {
		set[last] = true
		next, known := c.onto[element{lock, last}]
		if !known {
			return set, false
		}
		last = next
	}
	return set, true
}
