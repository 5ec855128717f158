package choose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/internal/sweep"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

// Run makes the runs of all candidates, and records each.
type Run struct {
	Dir     string
	Result  *Result
	Journal *campaign.Journal // runs recorded there are not made again
	Kept    *engine.KeptServers
	Budget  time.Duration // of all runs from now on; 0: none
	Cost    campaign.Cost
	// Say prints progress for people.
	Say func(format string, args ...any)

	list  []Candidate
	left  []job // the first is under way
	all   int   // the number of all jobs
	given bool  // the first was handed to the campaign
}

// noted is the journal's note on a run: what its row got from it, beside the verdict.
type noted struct {
	Sample *capacity.Sample `json:"sample,omitempty"` // of a load
	Loss   *Loss            `json:"loss,omitempty"`
	NotRun string           `json:"not_run,omitempty"` // why its row has no other run
}

// job is one run.
type job struct {
	row, load int // an index into the row's loads; one past them is its loss
	name      string
	scenario  scenarios.Scenario
	measured  time.Duration
}

// jobs returns all runs in order. Those of one service are adjacent, so that its servers are kept. All loads come
// first, interleaved, so that a disturbance of the machine meets all of the service's locks; then come the losses.
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
						out = append(out, job{
							i, k, figure.Of(Users, "user") + ", " + figure.Of(n, "lock"),
							list[i].loads[k], time.Duration(r.Result.Measured),
						})
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

// All makes all runs. If ctx ends or the budget is spent, the result holds what was measured so far. An error means
// that the rest cannot be run.
func (r *Run) All(ctx context.Context, list []Candidate) error {
	for _, c := range list {
		r.Result.Rows = append(r.Result.Rows, c.Row)
	}
	r.list, r.left = list, r.jobs(list)
	r.all = len(r.left)
	for _, done := range r.Journal.Results() {
		if err := r.again(done); err != nil {
			return err
		}
	}
	c := campaign.Campaign{Dir: r.Dir, Journal: r.Journal, Kept: r.Kept, Budget: r.Budget, Reader: r}
	_, err := c.Run(ctx, r)
	r.Result.Interrupted = c.Interrupted
	return errors.Join(err, r.Result.Write(r.Dir))
}

// again takes over a run that was made before.
func (r *Run) again(done campaign.Result) error {
	one, ok := r.next()
	if !ok || r.name(one) != done.Job {
		return fmt.Errorf("the journal has a run of %q, which is not the next run here", done.Job)
	}
	var n noted
	if err := json.Unmarshal(done.Note, &n); err != nil {
		return fmt.Errorf("the note of %q: %w", done.Job, err)
	}
	r.take(one, n)
	return nil
}

// next returns the first remaining job of a row without a broken run.
func (r *Run) next() (one job, ok bool) {
	for len(r.left) > 0 && r.Result.Rows[r.left[0].row].NotRun != "" {
		r.left = r.left[1:]
	}
	if len(r.left) == 0 {
		return one, false
	}
	return r.left[0], true
}

func (r *Run) name(one job) string {
	row := r.Result.Rows[one.row]
	return fmt.Sprintf("%s/%s, %s", row.Backend, row.Lock, one.name)
}

// Next returns the next run of a row without a run that broke or ran out of time.
func (r *Run) Next(done []campaign.Result) (j campaign.Job, ok bool) {
	if r.given {
		r.Result.Rows[r.left[0].row].NotRun = done[len(done)-1].NotMade
	}
	one, ok := r.next()
	if r.given = ok; !ok {
		return j, false
	}
	n, name := r.all-len(r.left), r.name(one)
	j = r.runner(one).Job(name, one.scenario, seed.Rand(r.Result.Seed, fmt.Sprintf("run %d", n)).Uint64()>>22+1)
	j.Title = []string{fmt.Sprintf("run %d of %d: %s", n+1, r.all, name)}
	j.Takes = warm + one.measured + r.Cost.Beside
	return j, true
}

// runner returns the runner that makes and reads the runs of a job's row.
func (r *Run) runner(one job) *sweep.Runner {
	return &sweep.Runner{Options: r.list[one.row].options, Warm: warm, For: one.measured}
}

// Begin announces a run.
func (r *Run) Begin(j campaign.Job, _ *engine.Options) {
	for _, line := range j.Title {
		r.Say("%s", line)
	}
}

// End records what a run has measured. After a broken run, its row gets no other.
func (r *Run) End(_ campaign.Job, run *campaign.Result) (err error) {
	if run.Interrupted {
		return nil
	}
	r.given = false
	one := r.left[0]
	m, failed := r.runner(one).Read(run)
	n := noted{}
	switch {
	case failed != nil:
		n.NotRun = strings.ReplaceAll(failed.Error(), "\n", "; ")
		r.Say("%s: %s", run.Job, n.NotRun)
	case one.load < len(loads):
		if m.Sample.Run = run.Dir; m.Sample.Spoilt != "" {
			r.Say("%s: unusable run: %s", run.Job, m.Sample.Spoilt)
		}
		n.Sample = &m.Sample
	default:
		n.Loss = lossOf(run.Dir, m)
	}
	r.take(one, n)
	run.Note, err = json.Marshal(n)
	return errors.Join(err, r.Result.Write(r.Dir))
}

// take adds the measurements of a run to its row.
func (r *Run) take(one job, n noted) {
	r.left = r.left[1:]
	row := &r.Result.Rows[one.row]
	switch {
	case n.Sample != nil:
		row.Loads[one.load].Samples = append(row.Loads[one.load].Samples, *n.Sample)
	case n.Loss != nil:
		row.Loss = n.Loss
	default:
		row.NotRun = n.NotRun
	}
}

// lossOf returns the measurements of a run in which a server was killed.
func lossOf(dir string, m sweep.Measured) *Loss {
	loss := &Loss{
		Run: dir, Verdict: m.Report.Verdict, Reasons: m.Report.Reasons,
		Double: m.Report.Counts["double_grants"],
	}
	for _, f := range m.Report.Faults {
		loss.Target, loss.Bit = f.Target, f.Receipt.Status == history.Installed
	}
	if loss.Bit {
		loss.Gap = m.Report.Measures["unavailability_ms_max"]
	}
	return loss
}
