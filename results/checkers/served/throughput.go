// Throughput: how many grants a second the clients got, from the start of the workload to the end of new acquires;
// with a warm-up, from its end until the load was over. It also counts, among the acquires that ended in that time,
// those turned away: certainly not granted. If the locks retry, it measures the failed attempts per grant. And it
// counts acquires that ended in an error, neither because another user had the lock nor because their time was over.
// If no fault was planned and most acquires ended at their deadline, a warning says that the figures are of users
// that give up.
//
// Example: eight users ask for one lock. The first is granted it at once, the second at its third attempt: 2 failed
// attempts for 2 grants.
//
// It judges nothing. It cannot see whether the lock or the load generator was the limit. It sees the attempts within
// one acquire only if the lock's adapter makes them: not those of a library that retries by itself, nor of a client
// in another language that does not report them. That figure needs the attempts of every grant; acquires still in
// progress are not in it.

// Package served has the checkers for what users got: grants a second, rounds without a winner, and users without
// grants.
package served

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type throughput struct {
	run           results.Run
	from, to      int64
	grants, asked int64
	away          int64 // ended acquires that were turned away
	broke         int64 // ended acquires that ended in an error
	tries         int64 // attempts of ended acquires
	untold        bool  // a grant does not report its attempts

	due    users.Table[int64] // when an asking user gives up; 0: it has no known deadline
	gaveUp int64              // ended acquires that ended at their deadline
}

// mostGaveUp is the share of acquires ending at their deadline from which a warning appears.
const mostGaveUp = 0.5

// Throughput is the checker.
var Throughput = results.CheckerKind{
	Name: "throughput", New: newThroughput, Grants: true,
	Doc: "The grants per second of all clients.",
	Measures: []results.Quantity{
		{Name: "throughput_per_s", Doc: "grants per second", First: 1, Timeless: true, MoreIsBetter: true},
		{
			Name: "failed_attempts_per_grant",
			Doc:  "attempts without a grant, for each grant, of a lock that retries by itself; null unless every grant reports its attempts", Timeless: true, InStep: true,
		},
		{Name: "turned_away_share", Doc: "share of the ended acquires that were certainly not granted, 0 to 1: what a gatekeeper keeps away", Timeless: true},
		{Name: results.AcquireErrors, Doc: "acquires that ended in an error, other than contention, their deadline, or the stop of the client", Timeless: true},
	},
}

func newThroughput(run results.Run) results.Checker {
	c := &throughput{run: run}
	c.from, c.to = run.Figures()
	return c
}

// Observe takes the next event.
func (c *throughput) Observe(e *history.Event) {
	switch {
	case e.Kind != history.Acquire:
		return
	case e.Phase == history.Invoke:
		*c.due.At(e.User) = e.Valid
		return
	case e.Time < c.from || e.Time > c.to:
		return
	}
	c.asked++
	due := *c.due.At(e.User)
	late := due > 0 && e.Time >= due
	if e.Phase != history.Ok && late {
		c.gaveUp++
	}
	if brokeOff(e, late) {
		c.broke++
	}
	c.tries += int64(e.Tries)
	switch e.Phase {
	case history.Ok:
		c.grants++
		c.untold = c.untold || e.Tries == 0
	case history.Fail:
		c.away++
	}
}

// brokeOff reports whether an error ended an acquire. An error without a class, or a late acquire without an answer,
// counts as giving up.
func brokeOff(e *history.Event, late bool) bool {
	switch {
	case e.Phase == history.Ok, e.Code == history.CodeNone, e.Code == history.CodeContended,
		e.Code == history.CodeCancelled:
		return false
	case e.Code == history.CodeTimeout:
		return !late
	}
	return true
}

// Finish returns the finding.
func (c *throughput) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{
		"throughput_per_s":  nil,
		"turned_away_share": nil, "failed_attempts_per_grant": nil, results.AcquireErrors: nil,
	}}
	if c.to <= c.from {
		f.Verdict, f.Skipped = results.Unknown, "the run has no end: it was cut short"
		return f
	}
	f.Measures["throughput_per_s"] = new(float64(c.grants) / (float64(c.to-c.from) / 1e9))
	if c.grants > 0 && !c.untold {
		f.Measures["failed_attempts_per_grant"] = new(float64(c.tries-c.grants) / float64(c.grants))
	}
	if c.asked > 0 {
		f.Measures[results.AcquireErrors] = new(float64(c.broke))
		f.Measures["turned_away_share"] = new(float64(c.away) / float64(c.asked))
		if part := float64(c.gaveUp) / float64(c.asked); part >= mostGaveUp && len(c.run.Faults) == 0 {
			f.Warnings = append(f.Warnings, fmt.Sprintf(
				"%.0f %% of the acquires ended at their deadline: the demand exceeds what the lock grants, and users who give up ask again; use fewer users or a longer workload.timeout", 100*part))
		}
	}
	return f
}
