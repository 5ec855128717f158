// Sums: transfers move money and make none.
//
// Each write of a transfer changes an account by what the client meant: what it wrote less what it had read. At the end
// each account must hold the sum of what was acknowledged for it (accounts_off counts those that do not), and so must all
// together (sum_off, by how much): 0, where every transfer had both its halves.
//
// A write of unknown outcome may or may not have been made; the accounts may be off by as much, and only what is beyond
// counts. So the counts are lower bounds. Losses that make up for each other within one account cannot be seen.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

type sums struct {
	run      Run
	reads    map[place]int64 // what each user read last
	pending  map[place]int64 // changes under way
	accounts map[uint16]*account
	finals   finals
	made     int
}

type account struct {
	sum   int64 // of the acknowledged changes
	doubt int64 // of the sizes of those of unknown outcome
}

func newSums(run Run) Checker {
	return &sums{run: run, reads: map[place]int64{}, pending: map[place]int64{}, accounts: map[uint16]*account{}, finals: finals{}}
}

// Observe takes the next event.
func (c *sums) Observe(e *history.Event) {
	c.finals.observe(e)
	switch {
	case c.run.Writes != writesTransfers:
	case e.Kind == history.Read && e.Phase == history.Ok:
		c.reads[placeOf(e)] = e.Value
	case e.Kind == history.Write && e.Phase == history.Invoke:
		c.pending[placeOf(e)] = e.Value - c.reads[placeOf(e)]
	case e.Kind == history.Write:
		c.settle(e)
	}
}

// settle takes the outcome of a write.
func (c *sums) settle(e *history.Event) {
	change, known := c.pending[placeOf(e)]
	if !known {
		return
	}
	delete(c.pending, placeOf(e))
	a := c.account(e.Lock)
	switch e.Phase {
	case history.Ok:
		c.made++
		a.sum += change
		c.reads[placeOf(e)] = e.Value
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
func (c *sums) Finish() Finding {
	for p, change := range c.pending { // whose client did not live to see the outcome
		c.account(p.lock).doubt += size(change)
	}
	f, ok := c.run.applies("sums", []string{"accounts_off", "sum_off"}, writesTransfers, c.made, c.finals)
	if !ok {
		return f
	}
	var off, difference, doubt int64
	for i := range c.run.Locks {
		final, read := c.finals[uint16(i)]
		if !read {
			continue
		}
		a := c.account(uint16(i))
		d := final.Value - a.sum
		difference += d
		doubt += a.doubt
		if size(d) <= a.doubt {
			continue
		}
		off++
		f.found(uint16(i), 1)
		if len(f.Witnesses) < MaxWitnesses {
			f.Witnesses = append(f.Witnesses, Witness{
				Kind: "account_off", Lock: lockName(c.run, uint16(i)), From: c.run.Start, To: final.Time,
				Text: fmt.Sprintf("the account of %s holds %d at the end, and the changes that were acknowledged make %d (%d more are of unknown outcome)",
					lockName(c.run, uint16(i)), final.Value, a.sum, a.doubt),
				Events: []history.Event{final},
			})
		}
	}
	sum := max(0, size(difference)-doubt)
	f.Verdict = verdictOf(off + sum)
	f.Counts = map[string]*int64{"accounts_off": count(off), "sum_off": count(sum)}
	f.Chances = map[string]Chances{"accounts_off": {int64(c.made), acknowledgedWrites}, "sum_off": {int64(c.made), acknowledgedWrites}}
	return f
}
