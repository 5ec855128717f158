// Load generator: the clients kept up with their load, so that the figures are the lock's.
//
// Each client reports how many arrivals of an open loop never got a user, how late it began what was due, and how
// much CPU it used. An unserved arrival has no latency, so the measured latencies look better than they were. If more
// than one in a hundred was not served, an expectation on a latency is unknown, unless the scenario has an
// expectation on the unserved.
//
// The history shows how late a start was. The generator lagged if a user was free and did not begin in time. If all
// users were busy, the lock kept them, and the wait is part of the latency. Both figures are of arrivals after the
// warm-up, if the run had one; arrivals and unserved ones are of the whole run.
//
// It cannot see what the rest of the machine took from the clients, nor the share of clients that run within another
// process: they do not report it.

// Package keptup has the checkers for whether the run itself kept up: its load generator and its processes.
package keptup

import (
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

const (
	lateBy       = 1e6  // ns: delay from which a start counts as late
	lateStart    = 10e6 // ns: delay of an open loop from which a warning appears
	crowdedShare = 0.4  // of the machine's CPU, from which clients compete with what they measure
)

type generator struct {
	run    results.Run
	served int64 // arrivals of the open loop that a user began
	late   int64 // late starts among those in figures, whatever the cause
	lag    *hdrhistogram.Histogram
	free   users.Table[int64] // since when a user has been idle
}

// Generator is the checker.
var Generator = results.CheckerKind{
	Name: "generator", New: newGenerator,
	Doc: "Whether the clients kept up with the requested load: unserved arrivals, lag, share of the machine's CPU.",
	Measures: []results.Quantity{
		{Name: "offered_per_s", Doc: "open loop: arrivals per second, served or not", Timeless: true},
		{Name: "unserved", Doc: "open loop: arrivals that came due and never got a user; latencies cover only those served"},
		{
			Name: "unserved_share", Doc: "open loop: share of unserved arrivals, 0 to 1; above 0.01 an expectation of a latency is unknown, unless the scenario expects something of `unserved` or `unserved_share`",
			Timeless: true,
		},
		{Name: "late_starts", Doc: "open loop: arrivals that began more than 1 ms late, because no user was free or the generator lagged"},
		{Name: "generator_lag_p99_ms", Doc: "open loop: 99th percentile of the delay with which free users began: the generator's own lag"},
		{
			Name: "client_cpu_share", Doc: "share of the machine's CPU that the clients used, 0 to 1: above 0.4 the load generator may be the limit, and the report warns",
			Timeless: true,
		},
	},
}

func newGenerator(run results.Run) results.Checker { return &generator{run: run} }

// Observe takes the next event; the rest is in env.json.
func (c *generator) Observe(e *history.Event) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke && e.Value != 0:
		c.begun(e)
	case e.Phase != history.Invoke && (e.Kind == history.Release || e.Kind == history.Acquire && e.Phase != history.Ok):
		*c.free.At(e.User) = e.Time
	}
}

// begun takes an arrival that a user began.
func (c *generator) begun(e *history.Event) {
	c.served++
	if !c.run.Counts(e.Value) {
		return
	}
	if e.Time-e.Value > lateBy {
		c.late++
	}
	if c.lag == nil {
		c.lag = hdrhistogram.New(results.LowestLatency, results.HighestLatency, 2)
	}
	// A value clamped to the histogram's range cannot be refused.
	_ = c.lag.RecordValue(min(max(e.Time-max(e.Value, *c.free.At(e.User)), 0), results.HighestLatency))
}

// Finish returns the finding.
func (c *generator) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{
		"offered_per_s": nil, "unserved": nil, "unserved_share": nil, "late_starts": nil, "generator_lag_p99_ms": nil,
		"client_cpu_share": nil,
	}}
	if c.lag != nil {
		f.Measures["late_starts"] = new(float64(c.late))
		f.Measures["generator_lag_p99_ms"] = new(results.Milli(c.lag.ValueAtQuantile(99)))
	}
	var cpu, unstarted int64
	var late results.ClientStats
	for _, s := range c.run.Clients {
		if _, ok := history.ClientOf(s.Name); !ok {
			continue
		}
		cpu += s.CPU
		unstarted += s.Unstarted
		if s.Lag > late.Lag {
			late = s
		}
	}
	if offered := c.served + unstarted; offered > 0 && c.run.End > c.run.Start {
		f.Measures["offered_per_s"] = new(float64(offered) / (float64(c.run.End-c.run.Start) / 1e9))
		f.Measures["unserved"], f.Measures["unserved_share"] = new(float64(unstarted)),
			new(float64(unstarted)/float64(offered))
	}
	if late.Lag > lateStart {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the schedule of the open loop lagged: %s began arrivals up to %.3f ms late", late.Name, results.Milli(late.Lag)))
	}
	if cpu <= 0 || c.run.Cores <= 0 || c.run.End <= c.run.Start {
		return f
	}
	share := float64(cpu) / (float64(c.run.End-c.run.Start) * float64(c.run.Cores))
	f.Measures["client_cpu_share"] = new(share)
	if share > crowdedShare {
		f.Warnings = append(f.Warnings, fmt.Sprintf(
			"the clients used %.0f %% of the machine's CPU: the load generator, not the lock, may be the limit",
			100*share))
	}
	return f
}
