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
	n       int64
	longest int64
	list    []Witness
}

func newStalls(run Run) Checker { return &stalls{run: run} }

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
	still := span{max(e.Time-e.Value, c.run.Start), e.Time}
	if still.until <= still.from {
		return
	}
	own := c.unasked(process, still)
	c.longest = max(c.longest, own)
	if own <= c.run.TTL/2 || c.run.TTL <= 0 {
		return
	}
	c.n++
	if len(c.list) < MaxWitnesses {
		c.list = append(c.list, Witness{
			Kind: "own_stall", From: still.from, To: still.until, Events: []history.Event{*e},
			Text: fmt.Sprintf("%s did not run from %s to %s, and no fault asked for %.3f ms of that",
				process, c.run.ms(still.from), c.run.ms(still.until), milli(own)),
		})
	}
}

// unasked returns the longest stretch of s that no fault on the process explains.
func (c *stalls) unasked(process string, s span) int64 {
	var longest int64
	from := s.from
	for i := range c.run.Faults { // in the order of their start
		f := &c.run.Faults[i]
		if !stops[f.Name] || !hits(f, process) {
			continue
		}
		end := f.End
		if end == 0 {
			end = forever
		}
		if f.Start >= s.until || end <= from {
			continue
		}
		longest = max(longest, f.Start-from)
		from = max(from, end)
	}
	return max(longest, s.until-from, 0)
}

func hits(f *history.Fault, process string) bool {
	for _, t := range f.Targets {
		if t == process {
			return true
		}
	}
	return false
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
