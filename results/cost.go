// Cost: how often waiters were woken for each handoff, and what the servers were asked for each handoff and each grant.
//
// The clients count the notifications that their watches brought, the servers what they were asked, each in its own way; both are
// read before the workload is let go and before it is stopped. What came between is divided by the handoffs (a release followed by
// a grant of the same lock) and the grants between.
//
// It judges nothing. Pings of sessions count as requests, and so does what lockquake itself asks while faults stand. It cannot see
// what servers that do not count were asked, users who are not told but ask again, or waiters whom the server itself wakes; where
// one server or client did not tell at both readings, or began to count anew between them, there is no figure.

package results

import (
	"github.com/lockquake/lockquake/history"
)

type cost struct {
	run      Run
	released map[uint16]bool // by lock: a release that no grant has followed yet
	handoffs int64
	grants   int64
}

func newCost(run Run) Checker { return &cost{run: run, released: map[uint16]bool{}} }

// Observe takes the next event.
func (c *cost) Observe(e *history.Event) {
	r := c.run.Readings
	if len(r) != 2 || e.Time < r[0].Time || e.Time > r[1].Time {
		return
	}
	switch {
	case e.Kind == history.Release && e.Phase == history.Invoke:
		c.released[e.Lock] = true
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		c.grants++
		if c.released[e.Lock] {
			c.released[e.Lock] = false
			c.handoffs++
		}
	}
}

// Finish returns the finding.
func (c *cost) Finish() Finding {
	f := Finding{Checker: "cost", Verdict: Clean, Measures: map[string]*float64{
		"wakeups_per_handoff": nil, "requests_per_handoff": nil, "requests_per_grant": nil,
	}}
	if len(c.run.Readings) != 2 {
		return f
	}
	before, after := c.run.Readings[0], c.run.Readings[1]
	if n, ok := between(before.Notifications, after.Notifications); ok {
		f.Measures["wakeups_per_handoff"] = per(n, c.handoffs)
	}
	if n, ok := between(before.Requests, after.Requests); ok {
		f.Measures["requests_per_handoff"], f.Measures["requests_per_grant"] = per(n, c.handoffs), per(n, c.grants)
	}
	return f
}

// between sums up what was counted between two readings; ok is false where somebody told at one of them alone, or began anew.
func between(before, after map[string]int64) (sum int64, ok bool) {
	if len(before) == 0 || len(before) != len(after) {
		return 0, false
	}
	for name, n := range after {
		was, told := before[name]
		if !told || n < was {
			return 0, false
		}
		sum += n - was
	}
	return sum, true
}

// per divides, where there is something to divide by.
func per(n, by int64) *float64 {
	if by == 0 {
		return nil
	}
	return measure(float64(n) / float64(by))
}
