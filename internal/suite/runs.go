package suite

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
)

// Runs is the plan of a suite: the runs of all cells, one cell after another.
type Runs struct {
	Result  *Result
	Options []engine.Options   // by cell
	Seed    func(n int) uint64 // of the n-th run of a cell, from 0, if its story sets none
}

// Next returns a run of the first cell that lacks one. If a run of a cell could not be made, the cell gets no other.
func (p Runs) Next(done []campaign.Result) (j campaign.Job, ok bool) {
	made, over := map[string]int{}, map[string]bool{}
	for _, d := range done {
		made[d.Job]++
		over[d.Job] = over[d.Job] || d.NotMade != ""
	}
	for i, c := range p.Result.Cells {
		n := made[c.Name()]
		if c.Apart != "" || c.NotRun != "" || over[c.Name()] || n >= p.Result.Repeat {
			continue
		}
		j = campaign.Job{
			Name: c.Name(), Title: []string{fmt.Sprintf("%s: run %d of %d", c.Name(), n+1, p.Result.Repeat)},
			Options: p.Options[i],
			Takes:   time.Duration(c.Estimate) * time.Millisecond,
		}
		if c.Scenario.Run.Seed == 0 {
			j.Seed = p.Seed(n)
		}
		return j, true
	}
	return j, false
}

// Fill adds the runs that were made to the cells, and sets why others were not.
func (r *Result) Fill(done []campaign.Result) {
	cells := map[string]*Cell{}
	for i := range r.Cells {
		c := &r.Cells[i]
		cells[c.Name()], c.Runs = c, nil
	}
	for _, d := range done {
		c := cells[d.Job]
		switch {
		case c == nil || c.Apart != "":
		case d.NotMade != "":
			c.NotRun, c.Missing = d.NotMade, d.Err != nil // else the budget was spent
		default:
			c.Runs = append(c.Runs, runOf(d))
		}
	}
}

// runOf returns a run as its cell stores it.
func runOf(d campaign.Result) Run {
	run := Run{
		Dir: d.Dir, Verdict: d.Verdict, Seed: d.Seed, Grants: d.Judged.Grants, Took: d.Took, Reasons: d.Reasons,
		Uncovered: d.Uncovered, Properties: d.Properties, Cost: costsOf(d.Measures),
		Replay: d.Replay,
	}
	switch {
	case run.Verdict == "":
		run.Verdict, run.Reasons = results.Unknown, []string{"the run broke; see its log"}
	case run.Verdict == results.Pass && d.Broke != "": // the lock was right, and something was left behind
		run.Verdict, run.Reasons = results.Unknown, []string{"the run ended with the error above"}
	}
	return run
}

// Results returns the runs of a suite in the form of a campaign: a suite older than campaigns has them in suite.json
// alone.
func (r Result) Results() (out []campaign.Result) {
	for _, c := range r.Cells {
		for _, run := range c.Runs {
			out = append(out, campaign.Result{
				Job: c.Name(), Seed: run.Seed, Dir: run.Dir, Took: run.Took, Verdict: run.Verdict, Reasons: run.Reasons,
				Judged: results.Judged{Grants: run.Grants}, Uncovered: run.Uncovered, Replay: run.Replay,
				Properties: run.Properties,
			})
		}
	}
	return out
}
