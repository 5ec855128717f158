// Oversold units: no more units of a stock are sold than there were.
//
// Where each acknowledged write sells one unit, the sales that the clients saw acknowledged must not be more than the
// stock under that lock.
//
// It cannot see a unit that was sold and never acknowledged, so the count is a lower bound; nor which of two buyers of
// one unit has it.

package harm

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type oversold struct {
	run    results.Run
	locks  map[uint16]*sales
	finals finals
	sold   int
}

type sales struct {
	units  int64
	beyond *history.Event // the first sale beyond the stock
}

// Oversold judges sales from a stock.
var Oversold = results.CheckerKind{
	Name: "oversold", New: newOversold,
	Doc: "Sales never exceed the stock.",
	Counts: []results.Quantity{
		{
			Name: "units_oversold", Doc: "workload `inventory`: acknowledged sales beyond the stock",
			Tone: results.Violation, Of: acknowledgedWrites, Outlived: true,
		},
	},
	Witnesses: results.Aside("oversold"),
}

func newOversold(run results.Run) results.Checker {
	return &oversold{run: run, locks: map[uint16]*sales{}, finals: finals{}}
}

// Observe takes the next event.
func (c *oversold) Observe(e *history.Event) {
	c.finals.observe(e)
	if e.Kind != history.Write || e.Phase != history.Ok {
		return
	}
	s := c.locks[e.Lock]
	if s == nil {
		s = &sales{}
		c.locks[e.Lock] = s
	}
	c.sold++
	s.units++
	if s.beyond == nil && s.units > c.run.Terms[termStock] {
		first := *e
		s.beyond = &first
	}
}

// Finish returns the finding.
func (c *oversold) Finish() results.Finding {
	f, ok := applies(c.run, writesSales, c.sold, c.finals)
	if !ok {
		return f
	}
	stock := c.run.Terms[termStock]
	if stock <= 0 {
		return f.Lacking("the run does not say how large the stock was")
	}
	var over int64
	for i := range c.run.Locks {
		s := c.locks[uint16(i)]
		if s == nil || s.beyond == nil {
			continue
		}
		over += s.units - stock
		f.Found(uint16(i), s.units-stock)
		f.Prove(results.Witness{
			Kind: "oversold", Lock: c.run.LockName(uint16(i)), From: s.beyond.Time, To: max(s.beyond.Time, c.run.End),
			Text: fmt.Sprintf("%d units were sold under %s, of a stock of %d; the first one too many went to %v at %s",
				s.units, c.run.LockName(uint16(i)), stock, s.beyond.User, c.run.MS(s.beyond.Time)),
			Events: []history.Event{*s.beyond},
		})
	}
	return f.Judged("units_oversold", over, int64(c.sold))
}
