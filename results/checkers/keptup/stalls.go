// Own stalls: no process of lockquake stood still for longer than half of the ttl unless a fault asked for it.
//
// A process that does not run stamps late, renews late and misses the very moments that decide about others; after
// such a stall a zero proves nothing. Stalls that a pause of that process explains do not count. Nor do those before
// the start of the workload, when no user had asked for a lock.
//
// It cannot see a stall of a process that died before it could report it.

package keptup

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type stalls struct {
	run     results.Run
	still   *results.Standstills
	n       int64
	longest int64
	list    []results.Witness
}

// Stalls is the checker.
var Stalls = results.CheckerKind{
	Name: "stalls", New: newStalls, Resource: true,
	Doc: "No process of lockquake stood still for longer than half of the TTL, except by a fault. Otherwise a zero proves nothing.",
	Counts: []results.Quantity{
		{Name: "own_stalls", Doc: "times that a process of lockquake stood still for longer than half of the TTL without a fault", Timeless: true},
	},
	Measures: []results.Quantity{
		{Name: "own_stall_ms_max", Doc: "the longest time that a process of lockquake stood still without a fault"},
	},
	Witnesses: results.Aside("own_stall"),
}

func newStalls(run results.Run) results.Checker {
	return &stalls{run: run, still: results.NewStandstills(run)}
}

// Observe takes the next event of an unnamed process.
func (c *stalls) Observe(e *history.Event) { c.observe(history.ClientName(e.User.Client()), e) }

// ObserveFrom takes the next event.
func (c *stalls) ObserveFrom(process *history.Header, e *history.Event) {
	c.observe(process.Process, e)
}

func (c *stalls) observe(process string, e *history.Event) {
	if e.Kind != history.Stall {
		return
	}
	own := c.still.Observe(process, e)
	c.longest = max(c.longest, own)
	if own <= c.run.TTL/2 || c.run.TTL <= 0 {
		return
	}
	c.n++
	if from := max(e.Time-e.Value, c.run.Start); len(c.list) < results.MaxWitnesses {
		c.list = append(c.list, results.Witness{
			Kind: "own_stall", From: from, To: e.Time, Events: []history.Event{*e},
			Text: fmt.Sprintf("%s did not run from %s to %s; no fault explains %.3f ms of that",
				process, c.run.MS(from), c.run.MS(e.Time), results.Milli(own)),
		})
	}
}

// Finish returns the finding.
func (c *stalls) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Witnesses: c.list}
	f.Counts = map[string]*int64{"own_stalls": new(c.n)}
	f.Measures = map[string]*float64{"own_stall_ms_max": new(results.Milli(c.longest))}
	if c.n > 0 {
		f.Verdict = results.Unknown
		f.Warnings = []string{fmt.Sprintf("%d times a process of lockquake did not run for longer than half of the ttl: %s", c.n, c.list[0].Text)}
	}
	return f
}
