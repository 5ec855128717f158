package choose

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/internal/sweep"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

// Run makes the runs of all candidates, and writes down each.
type Run struct {
	Dir    string
	Result *Result
	Kept   *engine.KeptServers
	// Say tells people what is done.
	Say func(format string, args ...any)

	list []Candidate
	left []job // the first is under way
	all  int   // how many there are in all
}

// job is one run.
type job struct {
	row, load int // load: of the row's, or its loss where there is none of that number
	name      string
	scenario  scenarios.Scenario
	measured  time.Duration
}

// jobs are all runs in their order. Those of one service follow each other, so that its servers are kept: first all loads, in turn, so that
// what the machine does meanwhile meets all of its locks; then the losses.
func (r *Run) jobs(list []Candidate) (out []job) {
	for first := 0; first < len(list); {
		next := first + 1
		for next < len(list) && list[next].Backend == list[first].Backend {
			next++
		}
		for range r.Result.Repeat {
			for k, n := range loads {
				for i := first; i < next; i++ {
					if list[i].NotRun == "" {
						out = append(out, job{i, k, figure.Of(Users, "user") + ", " + figure.Of(n, "lock"), list[i].loads[k], time.Duration(r.Result.Measured)})
					}
				}
			}
		}
		for i := first; i < next; i++ {
			if list[i].NotRun == "" {
				out = append(out, job{i, len(loads), "a server is killed", list[i].loss, lossRun})
			}
		}
		first = next
	}
	return out
}

// All runs everything. Where ctx ends, the result has what there is. An error says that the rest cannot be run.
func (r *Run) All(ctx context.Context, list []Candidate) error {
	for _, c := range list {
		r.Result.Rows = append(r.Result.Rows, c.Row)
	}
	r.list, r.left = list, r.jobs(list)
	r.all = len(r.left)
	c := campaign.Campaign{Dir: r.Dir, Kept: r.Kept, Reader: r}
	_, err := c.Run(ctx, r)
	r.Result.Interrupted = c.Interrupted
	return errors.Join(err, r.Result.Write(r.Dir))
}

// Next is the next run of a row none of whose runs broke.
func (r *Run) Next([]campaign.Result) (j campaign.Job, ok bool) {
	for ; len(r.left) > 0; r.left = r.left[1:] {
		one := r.left[0]
		row := r.Result.Rows[one.row]
		if row.NotRun != "" {
			continue
		}
		n := r.all - len(r.left)
		name := fmt.Sprintf("%s/%s, %s", row.Backend, row.Lock, one.name)
		j = r.runner(one).Job(name, one.scenario, seed.Rand(r.Result.Seed, fmt.Sprintf("run %d", n)).Uint64()>>22+1)
		j.Title = []string{fmt.Sprintf("run %d of %d: %s", n+1, r.all, name)}
		return j, true
	}
	return j, false
}

// runner makes and reads the runs of a job's row.
func (r *Run) runner(one job) *sweep.Runner {
	return &sweep.Runner{Options: r.list[one.row].options, Warm: warm, For: one.measured}
}

// Begin tells of a run.
func (r *Run) Begin(j campaign.Job, _ *engine.Options) {
	for _, line := range j.Title {
		r.Say("%s", line)
	}
}

// End writes down what a run has measured. A row of which one broke has no other.
func (r *Run) End(_ campaign.Job, run *campaign.Result) error {
	if run.Interrupted {
		return nil
	}
	one := r.left[0]
	r.left = r.left[1:]
	row := &r.Result.Rows[one.row]
	m, err := r.runner(one).Read(run)
	if err != nil {
		row.NotRun = strings.ReplaceAll(err.Error(), "\n", "; ")
		r.Say("%s/%s: %s", row.Backend, row.Lock, row.NotRun)
	} else {
		r.note(row, one, m, run.Dir)
	}
	return r.Result.Write(r.Dir)
}

// note writes down what a run measured.
func (r *Run) note(row *Row, j job, m sweep.Measured, dir string) {
	if j.load < len(row.Loads) {
		if m.Sample.Spoilt != "" {
			r.Say("%s/%s: this run cannot be used: %s", row.Backend, row.Lock, m.Sample.Spoilt)
		}
		m.Sample.Run = dir
		row.Loads[j.load].Samples = append(row.Loads[j.load].Samples, m.Sample)
		return
	}
	row.Loss = &Loss{Run: dir, Verdict: m.Report.Verdict, Reasons: m.Report.Reasons, Double: m.Report.Counts["double_grants"]}
	for _, f := range m.Report.Faults {
		row.Loss.Target, row.Loss.Bit = f.Target, f.Receipt.Status == history.Installed
	}
	if row.Loss.Bit {
		row.Loss.Gap = m.Report.Measures["unavailability_ms_max"]
	}
}
