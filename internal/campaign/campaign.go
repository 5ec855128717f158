// Package campaign makes many runs, one after another. A Plan says which run comes next, knowing the results so far.
// The campaign makes it on servers that it keeps from run to run, appends its result to a journal, keeps to a budget,
// ends in order when it is interrupted, and goes on later. A Reader follows it: tables, pages and verdicts are made of
// the results, and are no business of the campaign.
//
// Example: a plan of ten runs is interrupted in its fourth. The journal has three results. The same plan, given the
// same journal, is asked for the run that follows three results, and makes seven more.
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

// Plan says which run comes next.
type Plan interface {
	// Next returns the job that follows all results so far, those of the journal first; ok is false where there is
	// none. A job that was not made is among the results, with the reason: the plan may go on with another one.
	Next(done []Result) (j Job, ok bool)
}

// Job is a run that is to be made.
type Job struct {
	// Name tells it from others, for people and in the journal. Several jobs of one name are runs of the same thing.
	Name string
	// Title is what people are told before it begins, a line each.
	Title []string
	// Options are the run's. What it keeps of servers is the campaign's.
	Options engine.Options
	// Seed takes the place of the scenario's; 0: it does not.
	Seed uint64
	// Takes is about how long the run takes on servers that stand.
	Takes time.Duration
	// Cannot says why it cannot be made; nil: it may be.
	Cannot error
}

// Reader follows a campaign.
type Reader interface {
	// Begin is called before a run, whose options it may change.
	Begin(j Job, o *engine.Options)
	// End is called with what came of a job, before that stands in the journal. It may add a note. An error ends the
	// campaign.
	End(j Job, r *Result) error
}

// Campaign is many runs under way. The zero value of what is not set is the usual one.
type Campaign struct {
	Dir     string              // that run directories are told relative to
	Journal *Journal            // nil: nothing is written down, and nothing can be gone on with
	Kept    *engine.KeptServers // nil: each run starts servers of its own
	Budget  time.Duration       // that all runs may take from now on; 0: as long as they need
	Reader  Reader

	// Interrupted says that it was ended before its plan was.
	Interrupted bool

	run   func(context.Context, engine.Options) (string, error)        // engine.Run, but for tests
	judge func(dir string, c results.Checkers) (results.Report, error) // Judge, but for tests
}

// Run makes the runs of a plan, and returns all results, those of the journal first. Where ctx ends, the run under way
// is healed, torn down and judged, and none follows. An error says that the rest cannot be made.
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
			return done, nil // a run that was cut short counts for nothing
		}
		r.Report = results.Report{} // which the reader has seen
		done = append(done, r)
		if r.NotMade == "" && c.Journal != nil {
			if err := c.Journal.add(r); err != nil {
				return done, err
			}
		}
	}
}

// Spent is why a job is not made for which a budget has no time.
func Spent(budget time.Duration) string { return fmt.Sprintf("the budget of %v", budget) }

// make makes one run and judges it. Where nothing ran, because something is missing or wrong, it was not made.
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
	rep, failed := c.judge(dir, o.Catalog.Checkers)
	r.take(rep)
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

// Judge judges a run and writes its verdict into its directory.
func Judge(dir string, c results.Checkers) (results.Report, error) {
	rep, err := results.Judge(dir, c)
	if err == nil {
		err = results.WriteReport(dir, rep)
	}
	return rep, err
}

// relative is a run's directory as seen from the campaign's.
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
