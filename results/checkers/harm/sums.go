// Sums: transfers move money and make none.
//
// Each write of a transfer changes an account by the difference between what the client wrote and what it had read.
// At the end each account must hold the sum of its acknowledged changes; accounts_off counts those that do not. All
// accounts together must hold the sum of all changes; sum_off is the difference.
//
// If the second half of a transfer was refused, or never made, no change is lost: each account holds what was
// acknowledged. But no other account got what it took from one: money_missing is the difference of all accounts
// together from 0.
//
// A write of unknown outcome may or may not have been made. The accounts may be off by as much, and only the rest
// counts, so the counts are lower bounds. It cannot see losses that cancel out within one account.

package harm

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type sums struct {
	run      results.Run
	reads    map[results.Place]int64 // what each user read last
	pending  map[results.Place]int64 // changes under way
	accounts map[uint16]*account
	finals   finals
	made     int
}

type account struct {
	made  int   // acknowledged changes
	sum   int64 // of the changes
	doubt int64 // total size of changes with unknown outcome
}

// Sums judges accounts between which money is moved.
var Sums = results.CheckerKind{
	Name: "sums", New: newSums,
	Doc: "Transfers neither create nor lose money: each account, and their sum, is what the acknowledged transfers make it.",
	Counts: []results.Quantity{
		{
			Name: "accounts_off", Doc: "workload `balance`: accounts whose balance is not the sum of their acknowledged changes; writes of unknown outcome are allowed for",
			Tone: results.Violation, Of: acknowledgedWrites, NeedsAll: true, Outlived: true,
		},
		{
			Name: "sum_off", Doc: "workload `balance`: the total deviation of all accounts", Tone: results.Violation,
			Of: acknowledgedWrites, NeedsAll: true, Outlived: true,
		},
	},
	Measures: []results.Quantity{
		{
			Name:     "money_missing",
			Doc:      "workload `balance`: the deviation of the sum of all accounts from 0 at the end; it includes half-made transfers",
			Timeless: true,
		},
	},
	Witnesses: results.Aside("account_off"),
}

func newSums(run results.Run) results.Checker {
	return &sums{
		run: run, reads: map[results.Place]int64{}, pending: map[results.Place]int64{},
		accounts: map[uint16]*account{}, finals: finals{},
	}
}

// Observe takes the next event.
func (c *sums) Observe(e *history.Event) {
	c.finals.observe(e)
	switch {
	case c.run.Writes != writesTransfers:
	case e.Kind == history.Read && e.Phase == history.Ok:
		c.reads[results.PlaceOf(e)] = e.Value
	case e.Kind == history.Write && e.Phase == history.Invoke:
		c.pending[results.PlaceOf(e)] = e.Value - c.reads[results.PlaceOf(e)]
	case e.Kind == history.Write:
		c.outcome(e)
	}
}

// outcome takes the outcome of a write.
func (c *sums) outcome(e *history.Event) {
	change, known := c.pending[results.PlaceOf(e)]
	if !known {
		return
	}
	delete(c.pending, results.PlaceOf(e))
	a := c.account(e.Lock)
	switch e.Phase {
	case history.Ok:
		c.made++
		a.made++
		a.sum += change
		c.reads[results.PlaceOf(e)] = e.Value
	case history.Info:
		a.doubt += size(change)
	default:
	}
}

func (c *sums) account(lock uint16) *account {
	if c.accounts[lock] == nil {
		c.accounts[lock] = &account{}
	}
	return c.accounts[lock]
}

func size(n int64) int64 { return max(n, -n) }

// Finish returns the finding.
func (c *sums) Finish() results.Finding {
	for p, change := range c.pending { // changes whose client died before the outcome
		c.account(p.Lock).doubt += size(change)
	}
	f, ok := applies(c.run, writesTransfers, c.made, c.finals)
	f.Measures = map[string]*float64{"money_missing": nil}
	if !ok {
		return f
	}
	var off, difference, doubt, held int64
	for i := range c.run.Locks {
		final, read := c.finals[uint16(i)]
		a := c.account(uint16(i))
		if !read && a.made > 0 {
			return f.Lacking(notRead(c.run, uint16(i)))
		}
		if !read {
			continue
		}
		held += final.Value
		d := final.Value - a.sum
		difference += d
		doubt += a.doubt
		if size(d) <= a.doubt {
			continue
		}
		off++
		f.Found(uint16(i), 1)
		f.Prove(results.Witness{
			Kind: "account_off", Lock: c.run.LockName(uint16(i)), From: c.run.Start, To: final.Time,
			Text: fmt.Sprintf("the account of %s holds %d at the end, but its acknowledged changes add up to %d (%d more are of unknown outcome)",
				c.run.LockName(uint16(i)), final.Value, a.sum, a.doubt),
			Events: []history.Event{final},
		})
	}
	sum := max(0, size(difference)-doubt)
	f.Verdict = results.VerdictOf(off + sum)
	f.Counts = map[string]*int64{"accounts_off": new(off), "sum_off": new(sum)}
	f.Measures = map[string]*float64{"money_missing": new(float64(size(held)))}
	f.Chances = map[string]results.Chances{"accounts_off": {N: int64(c.made)}, "sum_off": {N: int64(c.made)}}
	return f
}
