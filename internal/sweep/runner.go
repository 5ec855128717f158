package sweep

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/scenarios"
)

// Runner measures one run after another on servers that it keeps. It must be closed.
type Runner struct {
	// Options is what all runs have in common; their scenario, time and seed are each run's own.
	Options engine.Options
	// Warm is how long a run goes before anything counts, For how long it is measured then.
	Warm, For time.Duration
	// Follow is called before each run, and what it returns after it, with the verdict or "" where there is none; nil: nobody follows.
	Follow func(o *engine.Options) (end func(verdict string))
}

// shapingTime is how much longer the warm-up is where links are delayed: the fault is measured before and after it is put up, and stands
// when something counts.
const shapingTime = time.Second

// warm is the warm-up of a scenario.
func (r *Runner) warm(s scenarios.Scenario) time.Duration {
	if len(s.Chaos) > 0 {
		return r.Warm + shapingTime
	}
	return r.Warm
}

// Measured is a run that was made.
type Measured struct {
	Sample capacity.Sample
	Report results.Report
	Dir    string // of the run
	Env    results.Env
	Took   time.Duration // in all
}

// Run makes one run of a scenario, judges it and reads what it measured. An error says that there is nothing to read. Where ctx ended,
// what there is has no figures.
func (r *Runner) Run(ctx context.Context, s scenarios.Scenario, seed uint64) (m Measured, err error) {
	began := clock.Now()
	defer func() { m.Took = time.Duration(clock.Now() - began) }()
	warm := r.warm(s)
	s, err = s.With([]string{
		fmt.Sprintf("run.for=%v", warm+r.For), fmt.Sprintf("run.warmup=%v", warm), "run.settle=0s", fmt.Sprintf("run.seed=%d", seed),
	})
	if err != nil {
		return m, err
	}
	o := r.Options
	o.Scenario, o.Started = s, clock.Time(clock.Now())
	verdict := results.Verdict("")
	if r.Follow != nil {
		end := r.Follow(&o)
		defer func() { end(string(verdict)) }()
	}
	dir, err := engine.Run(ctx, o)
	m.Dir = dir
	if ctx.Err() != nil {
		return m, ctx.Err()
	}
	if err != nil {
		return m, err
	}
	if m.Report, err = results.Judge(dir, o.Catalog.Checkers); err != nil {
		return m, err
	}
	verdict = m.Report.Verdict
	if err := results.WriteReport(dir, m.Report); err != nil {
		return m, err
	}
	if m.Env, err = results.ReadEnv(dir); err != nil {
		return m, err
	}
	m.Sample, err = sampleOf(dir, m.Report, m.Env)
	if a := r.Options.Attached; a != nil && a.Trip > 0 && m.Sample.RTT == nil {
		m.Sample.RTT = new(results.Milli(int64(a.Trip)))
	}
	return m, err
}

// Close ends the servers.
func (r *Runner) Close(ctx context.Context) error { return r.Options.Kept.Close(ctx) }
