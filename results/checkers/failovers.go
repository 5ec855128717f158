// Failovers: how many double grants a killed server costs.
//
// Each injection that bit and ended a server's process is a failover, whether another server took its place or the same came back. The
// rate is the double grants of the run per failover, with the interval of 95 % that Garwood (1936) gives for a Poisson rate, and per lock
// that somebody held, and was entitled to, at the moment of the kill. Double grants of one failover come in bunches, so the interval is
// narrower than the truth where one failover has many.
//
// Example: ten failovers with 64 locks held at each, and two double grants: 0.2 a failover (0.024 to 0.72), 0.0031 a held lock.
//
// It cannot see which failover a double grant came of, and takes all of the run for theirs.

package checkers

import (
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type failovers struct {
	at     []int64 // when servers were killed, in order
	done   int     // of these, those that the events have passed
	held   int64   // locks that were held at these moments, summed up
	t      *tracker
	double results.Checker
}

var failoversKind = results.CheckerKind{
	Name: "failovers", New: newFailovers,
	Doc: "How many double grants a killed server costs: per failover, and per lock that was held.",
	Measures: []results.Quantity{
		{Name: "failovers", Doc: "injections that ended a server's process"},
		{Name: "held_at_failover", Doc: "locks to which somebody was entitled when a server was killed, mean of the failovers"},
		{Name: "double_grants_per_failover", Doc: "double grants of the run, for each failover; `_low` and `_high` are the 95 % interval"},
		{Name: "double_grants_per_failover_low", Doc: "its lower end"},
		{Name: "double_grants_per_failover_high", Doc: "its upper end: what a zero is worth"},
		{Name: "double_grants_per_held", Doc: "double grants of the run, for each lock that was held when a server was killed"},
	},
}

func newFailovers(run results.Run) results.Checker {
	c := &failovers{}
	for i := range run.Faults {
		f := &run.Faults[i]
		server := slices.ContainsFunc(f.Targets, func(t string) bool { _, client := history.ClientOf(t); return !client })
		if server && f.Traits != nil && f.Traits.Kills && f.Receipt.Status == history.Installed {
			c.at = append(c.at, f.Start)
		}
	}
	slices.Sort(c.at)
	if len(c.at) > 0 {
		c.t, c.double = newTracker(run, c), newExclusion(run)
	}
	return c
}

// began, takenBack and ended do nothing: the tracker is asked.
func (c *failovers) began(*hold)            {}
func (c *failovers) takenBack(*hold, int64) {}
func (c *failovers) ended(*hold)            {}

// Observe takes the next event.
func (c *failovers) Observe(e *history.Event) {
	if c.double == nil {
		return
	}
	c.pass(e.Time)
	c.t.observe(e)
	c.double.Observe(e)
}

// pass counts the holds at the failovers before t.
func (c *failovers) pass(t int64) {
	for ; c.done < len(c.at) && c.at[c.done] < t; c.done++ {
		for _, open := range c.t.locks {
			if slices.ContainsFunc(open, func(h *hold) bool { return h.entitled(c.at[c.done], c.at[c.done]) }) {
				c.held++
			}
		}
	}
}

// Finish returns the finding.
func (c *failovers) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	if c.double == nil {
		return skipped(f, "no server was killed")
	}
	c.pass(results.Forever)
	n, held := float64(len(c.at)), float64(c.held)
	mean := held / n
	f.Measures = map[string]*float64{"failovers": &n, "held_at_failover": &mean}
	k := c.double.Finish().Counts["double_grants"]
	if k == nil {
		return skipped(f, "double grants were not judged")
	}
	low, high := Garwood(*k)
	for name, v := range map[string]float64{"": float64(*k), "_low": low, "_high": high} {
		rate := v / n
		f.Measures["double_grants_per_failover"+name] = &rate
	}
	if held > 0 {
		rate := float64(*k) / held
		f.Measures["double_grants_per_held"] = &rate
	}
	return f
}

// Garwood is the 95 % interval of the mean of a Poisson count (Garwood, "Fiducial limits for the Poisson distribution", Biometrika 1936).
func Garwood(k int64) (low, high float64) {
	const tail = 0.025
	if k > 0 {
		low = distuv.ChiSquared{K: 2 * float64(k)}.Quantile(tail) / 2
	}
	return low, distuv.ChiSquared{K: 2*float64(k) + 2}.Quantile(1-tail) / 2
}
