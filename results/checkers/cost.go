// Cost: how often waiters were woken for each handoff, and how many requests the servers took for each handoff and
// each grant.
//
// The clients count the notifications of their watches, the servers count their requests, each in its own way. Both
// are read before the workload is let go and before it is stopped. The differences are divided by the handoffs (a
// release followed by a grant of the same lock) and the grants between.
//
// It judges nothing. Pings of sessions count as requests, and so does what lockquake itself asks while faults stand.
// It cannot see:
//   - the requests of servers that do not count them
//   - users who poll, or waiters whom the server itself wakes: no watch notifies them
//
// There is no figure where a server or client is missing from a reading, or began to count anew between the two.

package checkers

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type cost struct {
	run      results.Run
	released map[uint16]bool // by lock: a release that no grant has followed yet
	handoffs int64
	grants   int64
}

var costKind = results.CheckerKind{
	Name: "cost", New: newCost,
	Doc: "What a handoff and a grant cost: how many waiters were woken, and what the servers were asked, for each.",
	Measures: []results.Quantity{
		{Name: "wakeups_per_handoff", Doc: "notifications of watches for each handoff ([cost](#cost))", Timeless: true},
		{Name: "requests_per_handoff", Doc: "requests to the servers for each handoff ([cost](#cost))", Timeless: true},
		{Name: "requests_per_grant", Doc: "requests to the servers for each grant ([cost](#cost))", Timeless: true},
	},
}

func newCost(run results.Run) results.Checker { return &cost{run: run, released: map[uint16]bool{}} }

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
func (c *cost) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{
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

// between sums up what was counted between two readings. It is not ok where somebody is in only one of them, or
// began to count anew.
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
