// Lost elements: every acknowledged element of a set is in it at the end.
//
// Each write replaces the set by what its writer had read and one more element, which its value names. So the element
// that was added last stands for the whole set. Its writer had read another element, which stands for the set before,
// and so on down to the empty set. Acknowledged elements missing from this chain, starting at the final read, are
// lost.
//
// Example: A and B both read the set of a. A adds b and is acknowledged, B adds c and is acknowledged. The final read
// is c, c was added to a, a to the empty set: b is lost.
//
// An element is acknowledged when the resource accepted its write, whatever the lock said afterwards.
// acknowledged_elements counts them, lost_elements_share is the lost part of them.
//
// It cannot see which write removed an element.

package harm

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type lostElements struct {
	run    results.Run
	reads  map[results.Place]int64
	onto   map[element]int64 // what each element was added to
	acked  map[uint16][]history.Event
	finals finals
	added  int
}

// element names an element in the set of a lock.
type element struct {
	lock uint16
	name int64
}

// LostElements judges sets to which elements are added.
var LostElements = results.CheckerKind{
	Name: "lost_elements", New: newLostElements,
	Doc: "Every element whose addition to a set was acknowledged is in the set at the end.",
	Counts: []results.Quantity{
		{
			Name: "lost_elements", Doc: "workload `guarded-set`: acknowledged elements that are missing from the set at the end",
			Tone: results.Violation, Of: acknowledgedWrites, Outlived: true,
		},
	},
	Measures: []results.Quantity{
		{Name: "acknowledged_elements", Doc: "workload `guarded-set`: writes that the resource accepted, whatever the lock answered afterwards", MoreIsBetter: true},
		{Name: "lost_elements_share", Doc: "share of them that is lost, 0 to 1 (`\"<5%\"`)", Timeless: true},
	},
	Witnesses: results.Aside("lost_element"),
}

func newLostElements(run results.Run) results.Checker {
	return &lostElements{
		run: run, reads: map[results.Place]int64{}, onto: map[element]int64{}, acked: map[uint16][]history.Event{},
		finals: finals{},
	}
}

// Observe takes the next event.
func (c *lostElements) Observe(e *history.Event) {
	c.finals.observe(e)
	switch {
	case c.run.Writes != writesElements:
	case e.Kind == history.Read && e.Phase == history.Ok:
		c.reads[results.PlaceOf(e)] = e.Value
	case e.Kind == history.Write && e.Phase == history.Invoke:
		c.onto[element{e.Lock, e.Value}] = c.reads[results.PlaceOf(e)]
	case e.Kind == history.Write && e.Phase == history.Ok:
		c.added++
		c.acked[e.Lock] = append(c.acked[e.Lock], *e)
	}
}

// Finish returns the finding.
func (c *lostElements) Finish() results.Finding {
	f, ok := applies(c.run, writesElements, c.added, c.finals)
	f.Measures = map[string]*float64{"acknowledged_elements": nil, "lost_elements_share": nil}
	if !ok {
		return f
	}
	var lost, acknowledged int64
	for i := range c.run.Locks {
		lock := uint16(i)
		final, read := c.finals[lock]
		if !read && len(c.acked[lock]) > 0 {
			return f.Lacking(notRead(c.run, lock))
		}
		set, whole := c.set(lock, final.Value)
		if !whole {
			return f.Lacking(fmt.Sprintf("the set of %s has an element that no recorded write added",
				c.run.LockName(lock)))
		}
		var gone []history.Event
		for _, e := range c.acked[lock] {
			if !set[e.Value] {
				gone = append(gone, e)
			}
		}
		lost += int64(len(gone))
		f.Found(lock, int64(len(gone)))
		acknowledged += int64(len(c.acked[lock]))
		if len(gone) > 0 {
			f.Prove(results.Witness{
				Kind: "lost_element", Lock: c.run.LockName(lock), From: gone[0].Time, To: final.Time,
				Text: fmt.Sprintf("%d of %d acknowledged elements of %s are not in the set at the end; the first was added by %v at %s",
					len(gone), len(c.acked[lock]), c.run.LockName(lock), gone[0].User, c.run.MS(gone[0].Time)),
				Events: []history.Event{gone[0], final},
			})
		}
	}
	f = f.Judged("lost_elements", lost, acknowledged)
	f.Measures["acknowledged_elements"] = new(float64(acknowledged))
	if acknowledged > 0 {
		f.Measures["lost_elements_share"] = new(float64(lost) / float64(acknowledged))
	}
	return f
}

// set walks down from the last added element. It is not whole if it meets an element that was never added.
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
