package sweep

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/scenarios"
)

// Runner makes jobs of scenarios whose load is measured after a warm-up, and reads the measurements.
type Runner struct {
	// Options holds what all runs have in common; each run has its own scenario and seed.
	Options engine.Options
	// Warm is the time of a run before anything counts, For the measured time after it.
	Warm, For time.Duration
}

// shapingTime is added to the warm-up if links are delayed: the fault is measured before and after it is applied, and
// must be in place when something counts.
const shapingTime = time.Second

// warm returns the warm-up of a scenario.
func (r *Runner) warm(s scenarios.Scenario) time.Duration {
	if len(s.Chaos) > 0 {
		return r.Warm + shapingTime
	}
	return r.Warm
}

// Job returns a run of a scenario. If the scenario cannot be measured in this way, the job cannot be made.
func (r *Runner) Job(name string, s scenarios.Scenario, seed uint64) campaign.Job {
	warm := r.warm(s)
	j := campaign.Job{Name: name, Options: r.Options, Seed: seed}
	j.Options.Scenario, j.Cannot = s.With([]string{
		fmt.Sprintf("run.for=%v", warm+r.For),
		fmt.Sprintf("run.warmup=%v", warm), "run.settle=0s",
	})
	return j
}

// Measured is the measurement of a run.
type Measured struct {
	Sample capacity.Sample
	Report results.Report
	Dir    string // of the run
	Env    results.Env
	Took   time.Duration // in all
}

// Read reads what a run has measured. An error says that there is nothing to read.
func (r *Runner) Read(run *campaign.Result) (m Measured, err error) {
	m = Measured{Report: run.Report, Dir: run.At, Took: time.Duration(run.Took) * time.Millisecond}
	if err := errors.Join(run.Err, run.Unjudged); err != nil {
		return m, err
	}
	if m.Env, err = results.ReadEnv(run.At); err != nil {
		return m, err
	}
	m.Sample, err = sampleOf(run.At, m.Report, m.Env)
	if a := r.Options.Attached; a != nil && a.Trip > 0 && m.Sample.RTT == nil {
		m.Sample.RTT = new(results.Milli(int64(a.Trip)))
	}
	return m, err
}
