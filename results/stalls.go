// Own stalls: no process of lockquake stood still for longer than half of the ttl unless a fault asked for it.
//
// A process that does not run stamps late, renews late and misses the very moments that the others are judged by; after
// such a stall a zero proves nothing. What a pause on that process explains does not count, nor what lies before the workload was
// let go: nobody had asked for a lock yet.
//
// It cannot see a stall of a process that died before it could tell.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

// stops names the faults that ask a process to stand still.
var stops = map[string]bool{"pause": true, "freeze": true}

type stalls struct {
	run     Run
	still   *standstills
	n       int64
	longest int64
	list    []Witness
}

func newStalls(run Run) Checker { return &stalls{run: run, still: newStandstills(run)} }

// Observe takes the next event of a process whose name is not known.
func (c *stalls) Observe(e *history.Event) { c.observe(clientName(e.User.Client()), e) }

// ObserveFrom takes the next event.
func (c *stalls) ObserveFrom(process *history.Header, e *history.Event) {
	c.observe(process.Process, e)
}

func (c *stalls) observe(process string, e *history.Event) {
	if e.Kind != history.Stall {
		return
	}
	var own int64 // the longest stretch that no fault explains
	for _, s := range c.still.observe(process, e) {
		own = max(own, s.until-s.from)
	}
	c.longest = max(c.longest, own)
	if own <= c.run.TTL/2 || c.run.TTL <= 0 {
		return
	}
	c.n++
	if from := max(e.Time-e.Value, c.run.Start); len(c.list) < MaxWitnesses {
		c.list = append(c.list, Witness{
			Kind: "own_stall", From: from, To: e.Time, Events: []history.Event{*e},
			Text: fmt.Sprintf("%s did not run from %s to %s, and no fault asked for %.3f ms of that",
				process, c.run.ms(from), c.run.ms(e.Time), milli(own)),
		})
	}
}

// Finish returns the finding.
func (c *stalls) Finish() Finding {
	f := Finding{Checker: "stalls", Verdict: Clean, Witnesses: c.list}
	f.Counts = map[string]*int64{"own_stalls": count(c.n)}
	f.Measures = map[string]*float64{"own_stall_ms_max": measure(milli(c.longest))}
	if c.n > 0 {
		f.Verdict = Unknown
		f.Warnings = []string{fmt.Sprintf("%d times a process of lockquake did not run for longer than half of the ttl: %s", c.n, c.list[0].Text)}
	}
	return f
}
