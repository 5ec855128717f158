// Package campaign makes many runs, one after another. A Plan chooses the next run from the results so far. The
// campaign makes it on servers that it keeps from run to run, and appends the result to a journal. It keeps to a
// budget, ends in order when it is interrupted, and can be resumed later. A Reader follows it: tables, pages and
// verdicts are made from the results outside this package.
//
// Example: a plan of ten runs is interrupted in its fourth run. The journal has three results. When the plan is
// resumed with the same journal, it is asked for the run after three results, and makes seven more.
package campaign

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// Plan chooses the next run.
type Plan interface {
	// Next returns the job after all results so far, those of the journal first. ok is false if there is none. The
	// results include jobs that could not be made, with the reason: the plan may go on with another job.
	Next(done []Result) (j Job, ok bool)
}

// Job is a run to make.
type Job struct {
	// Name identifies the job to people and in the journal. Jobs with the same name are runs of the same thing.
	Name string
	// Title is printed before the run, a line each.
	Title []string
	// Options are the options of the run. The campaign sets those for kept servers.
	Options engine.Options
	// Seed replaces the scenario's seed; 0 keeps that.
	Seed uint64
	// Takes is the estimated time of the run on servers that are already up.
	Takes time.Duration
	// Cannot is the reason why the job cannot be made; nil if it can.
	Cannot error
}

// Reader follows a campaign.
type Reader interface {
	// Begin is called before a run. It may change the options.
	Begin(j Job, o *engine.Options)
	// End is called with the result of a job before it is written to the journal. It may add a note. An error ends
	// the campaign.
	End(j Job, r *Result) error
}

// Campaign makes the runs of a plan. The zero value of a field is its default.
type Campaign struct {
	Dir     string              // run directories are recorded relative to it
	Journal *Journal            // nil: nothing is recorded, and the campaign cannot be resumed
	Kept    *engine.KeptServers // nil: each run starts its own servers
	Budget  time.Duration       // for all runs from now on; 0: unlimited
	Reader  Reader

	// Interrupted says that the campaign was ended before its plan was.
	Interrupted bool

	run   func(context.Context, engine.Options) (string, error)        // engine.Run, except in tests
	judge func(dir string, c results.Checkers) (results.Report, error) // Judge, except in tests
}

// Run makes the runs of a plan, and returns all results, those of the journal first. When ctx ends, Run heals, tears
// down and judges the run under way, and makes no other. An error means that the rest cannot be made.
func (c *Campaign) Run(ctx context.Context, p Plan) (done []Result, err error) {
	if c.run == nil {
		c.run, c.judge = engine.Run, Judge
	}
	if c.Journal != nil {
		done = c.Journal.Results()
		defer func() { err = errors.Join(err, c.Journal.Close()) }()
	}
	defer func() { err = errors.Join(err, c.Kept.Close(ctx)) }()
	began := clock.Now()
	for {
		j, ok := p.Next(done)
		if !ok {
			return done, nil
		}
		if ctx.Err() != nil {
			c.Interrupted = true
			return done, nil
		}
		if c.Budget > 0 && time.Duration(clock.Now()-began)+j.Takes > c.Budget {
			done = append(done, Result{Job: j.Name, NotMade: Spent(c.Budget)})
			continue
		}
		r := c.make(ctx, j)
		c.Interrupted = ctx.Err() != nil
		r.Interrupted = c.Interrupted
		if err := c.Reader.End(j, &r); err != nil {
			return done, err
		}
		if c.Interrupted {
			return done, nil // a run that was cut short does not count
		}
		r.Report = results.Report{} // the reader has seen it
		done = append(done, r)
		if r.NotMade == "" && c.Journal != nil {
			if err := c.Journal.add(r); err != nil {
				return done, err
			}
		}
	}
}

// Spent returns the reason for not making a job that the budget has no time for.
func Spent(budget time.Duration) string { return fmt.Sprintf("the budget of %v", budget) }

// make makes one run and judges it. If nothing ran because something is missing or wrong, the job counts as not made.
func (c *Campaign) make(ctx context.Context, j Job) Result {
	o, r := j.Options, Result{Job: j.Name}
	if j.Seed != 0 && j.Cannot == nil {
		o.Scenario, j.Cannot = o.Scenario.With([]string{fmt.Sprintf("run.seed=%d", j.Seed)})
	}
	if j.Cannot != nil {
		r.Err, r.NotMade = j.Cannot, oneLine(j.Cannot)
		return r
	}
	o.Kept, o.Started, r.Seed = c.Kept, clock.Time(clock.Now()), o.Scenario.Run.Seed
	c.Reader.Begin(j, &o)
	start := clock.Now()
	dir, err := c.run(ctx, o)
	r.Err = err
	if abs, err := filepath.Abs(dir); err == nil && dir != "" {
		dir = abs
	}
	if r.At = dir; dir == "" || nothingRan(err) {
		if r.NotMade = oneLine(err); r.NotMade == "" {
			r.NotMade = "interrupted"
		}
		return r
	}
	ran := clock.Now()
	rep, failed := c.judge(dir, o.Catalog.Checkers)
	r.take(rep)
	r.Judging = (clock.Now() - ran) / int64(time.Millisecond)
	r.Dir, r.Unjudged, r.Broke = relative(c.Dir, dir), failed, oneLine(errors.Join(err, failed))
	r.Took = (clock.Now() - start) / int64(time.Millisecond)
	return r
}

// nothingRan reports whether a run ended before it began, because something is missing or wrong.
func nothingRan(err error) bool {
	var scenario *scenarios.Error
	return errors.As(err, new(engine.MissingError)) || errors.As(err, new(chaos.Unavailable)) ||
		errors.As(err, new(engine.UsageError)) || errors.As(err, &scenario)
}

// Judge judges a run and writes the verdict into its directory.
func Judge(dir string, c results.Checkers) (results.Report, error) {
	rep, err := results.Judge(dir, c)
	if err == nil {
		err = results.WriteReport(dir, rep)
	}
	return rep, err
}

// relative returns the path of a run's directory relative to the campaign's.
func relative(from, dir string) string {
	if abs, err := filepath.Abs(from); err == nil && from != "" {
		if rel, err := filepath.Rel(abs, dir); err == nil {
			return rel
		}
	}
	return dir
}

func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}
