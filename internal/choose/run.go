package choose

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/internal/sweep"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

// Run makes the runs of all candidates, and writes down each.
type Run struct {
	Dir    string
	Result *Result
	// Say tells people what is done.
	Say func(format string, args ...any)
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
	all := r.jobs(list)
	for i, j := range all {
		row := &r.Result.Rows[j.row]
		if row.NotRun != "" { // an earlier run of it broke
			continue
		}
		r.Say("run %d of %d: %s/%s, %s", i+1, len(all), row.Backend, row.Lock, j.name)
		runner := sweep.Runner{Options: list[j.row].options, Warm: warm, For: j.measured}
		m, err := runner.Run(ctx, j.scenario, seed.Rand(r.Result.Seed, fmt.Sprintf("run %d", i)).Uint64()>>22+1)
		switch {
		case ctx.Err() != nil:
			r.Result.Interrupted = true
			return r.Result.Write(r.Dir)
		case err != nil:
			row.NotRun = strings.ReplaceAll(err.Error(), "\n", "; ")
			r.Say("%s/%s: %s", row.Backend, row.Lock, row.NotRun)
		default:
			r.note(row, j, m)
		}
		if err := r.Result.Write(r.Dir); err != nil {
			return err
		}
	}
	return r.Result.Write(r.Dir)
}

// note writes down what a run measured.
func (r *Run) note(row *Row, j job, m sweep.Measured) {
	dir := m.Dir
	if rel, err := filepath.Rel(r.Dir, m.Dir); err == nil {
		dir = rel
	}
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
