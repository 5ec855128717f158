package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// Sweep measures points, one run after another, and writes the results after each.
type Sweep struct {
	Runner  *Runner
	Dir     string            // of the sweep
	File    capacity.Sweep    // the results so far; at first only the header
	Journal *campaign.Journal // runs recorded there are not made again
	Budget  time.Duration     // of all runs; 0: none
	// Say prints what the result does not show, such as a reason. Progress shows how far the sweep is.
	Say      func(format string, args ...any)
	Progress func(engine.Progress)
	// Follow is called before each run. The function it returns is called after the run, with the verdict or "" if
	// there is none. nil: no calls.
	Follow func(o *engine.Options) (end func(verdict string))

	plan     schedule
	began    int64
	order    int // of the next run
	pace     pace
	due      []Point   // of the plan, in the order of their runs
	searches *searches // what follows them
	under    []Point   // the point being run; none between runs
	followed func(verdict string)
}

// pace is the progress of a sweep.
type pace struct {
	mu    sync.Mutex
	guess time.Duration // estimated time of a run, before one was made
	done  int           // runs that were made
	took  time.Duration // the time these took
	all   int           // planned runs, as far as known
	name  string        // of the point under way
	since int64         // ns: when its run began
}

// is updates the progress.
func (p *pace) is(how func(*pace)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	how(p)
}

// each estimates the time of one run.
func (p *pace) each() time.Duration {
	if p.done == 0 {
		return p.guess
	}
	return p.took / time.Duration(p.done)
}

// progress returns the progress for people.
func (p *pace) progress(began int64) engine.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := clock.Now()
	elapsed, under := time.Duration(now-began), time.Duration(now-p.since)
	left := max(0, p.each()-under) + p.each()*time.Duration(max(0, p.all-p.done-1))
	return engine.Progress{
		Phase: fmt.Sprintf("run %d of %d: %s", p.done+1, max(p.all, p.done+1), p.name), Elapsed: elapsed,
		Total: (elapsed + left).Round(time.Second), Left: left,
	}
}

// Plan chooses what the budget allows. It starts and writes nothing.
func (s *Sweep) Plan(points []Point) (err error) {
	if err := roomFor(points, s.File.Searches()); err != nil {
		return err
	}
	if s.plan, err = within(points, s.File.Repeat, s.Budget, s.cost()); err != nil {
		return err
	}
	if err := s.checkSearch(); err != nil {
		return err
	}
	if s.plan.why != "" {
		s.Say("%s", s.plan.why)
	}
	return nil
}

// roomFor rejects a sweep that its file could not hold in the end.
func roomFor(points []Point, searched bool) error {
	n := len(points)
	if searched {
		n += capacity.SearchMost * len(largest(points))
	}
	if n > capacity.MostPoints {
		return engine.UsageError{Text: fmt.Sprintf("the sweep may have %d points, including the search of --slo, but at most %d are possible; use fewer values", n, capacity.MostPoints)}
	}
	return nil
}

// Points returns the number of points in the plan.
func (s *Sweep) Points() int { return len(s.plan.points) }

// Takes returns the estimated time of the plan.
func (s *Sweep) Takes() time.Duration { return s.plan.takes }

// searchRuns is about how many runs the search of one curve needs.
const searchRuns = 10

// cost estimates how long runs take: from the runs so far, or by a guess.
func (s *Sweep) cost() cost {
	r := s.Runner
	of := campaign.CostOf(r.Options.Provider.Name(), filepath.Dir(s.Dir))
	c := cost{first: of.Start}
	c.point = func(p Point) time.Duration { return r.warm(p.Scenario) + r.For + of.Beside }
	if s.File.Searches() {
		c.search = searchRuns
	}
	return c
}

// Run measures what was planned. It returns when all is done, the budget is used up or ctx ends. File then holds the
// results so far, and has been written. An error says that the sweep cannot go on.
func (s *Sweep) Run(ctx context.Context) (err error) {
	s.began = clock.Now()
	s.File.Left = slices.Clone(s.plan.left)
	if err := s.again(); err != nil {
		return err
	}
	s.due = s.plan.lacking(s.File)
	s.searches = &searches{sweep: s, left: s.largest()}
	s.pace.is(func(p *pace) {
		p.all = len(s.due) + searchRuns*len(s.searches.left)
		p.guess = s.plan.takes / time.Duration(max(p.all, 1))
	})
	stop, over := context.WithCancel(ctx)
	defer over()
	go s.tick(stop)
	c := campaign.Campaign{Dir: s.Dir, Journal: s.Journal, Kept: s.Runner.Options.Kept, Reader: s}
	_, err = c.Run(ctx, s)
	if s.File.Interrupted = c.Interrupted; c.Interrupted {
		s.leave(append(s.under, s.due...), "interrupted")
	}
	return errors.Join(err, s.write())
}

// again takes over the runs made before.
func (s *Sweep) again() error {
	for _, done := range s.Journal.Results() {
		var n noted
		if err := json.Unmarshal(done.Note, &n); err != nil {
			return fmt.Errorf("the note of %q: %w", done.Job, err)
		}
		s.add(n)
	}
	return nil
}

// Next returns the next point of the plan, and after those the ones that the searches ask for.
func (s *Sweep) Next([]campaign.Result) (j campaign.Job, ok bool) {
	if len(s.due) == 0 {
		return s.searches.next()
	}
	if why := s.mustEnd(s.Budget); why != "" {
		s.leave(s.due, why)
		s.due, s.searches.left = nil, nil
		return j, false
	}
	p := s.due[0]
	s.due = s.due[1:]
	return s.job(p), true
}

// job returns the run of a point.
func (s *Sweep) job(p Point) campaign.Job {
	s.under = []Point{p}
	return s.Runner.Job(Name(p.Setting), p.Scenario,
		seed.Rand(s.File.Seed, fmt.Sprintf("run %d", s.order)).Uint64()>>22+1)
}

// mustEnd returns why no further run may be made, or "". end is the deadline, counted from the start of the sweep; 0
// is none.
func (s *Sweep) mustEnd(end time.Duration) string {
	var done int
	var each time.Duration
	s.pace.is(func(p *pace) { done, each = p.done, p.each() })
	if end > 0 && done > 0 && time.Duration(clock.Now()-s.began)+each > end {
		return campaign.Spent(s.Budget)
	}
	return ""
}

// leave records the points without a sample.
func (s *Sweep) leave(points []Point, why string) {
	for _, p := range points {
		has := slices.ContainsFunc(s.File.Points, func(o capacity.Point) bool {
			return o.Setting == p.Setting &&
				len(o.Samples) > 0
		})
		if !has && !slices.ContainsFunc(s.File.Left, func(l capacity.Left) bool { return l.Setting == p.Setting }) {
			s.File.Left = append(s.File.Left, capacity.Left{Setting: p.Setting, Why: why})
		}
	}
}

// Begin announces a run.
func (s *Sweep) Begin(j campaign.Job, o *engine.Options) {
	s.pace.is(func(p *pace) { p.name, p.since = j.Name, clock.Now() })
	s.tell()
	o.Progress, s.followed = nil, func(string) {}
	if s.Follow != nil {
		s.followed = s.Follow(o)
	}
}

// End adds the measurements of a run. A run that broke is a spoilt sample, unless something is missing that every run
// needs.
func (s *Sweep) End(j campaign.Job, r *campaign.Result) (err error) {
	if s.followed != nil {
		s.followed(string(r.Verdict))
	}
	var missing engine.MissingError
	var usage engine.UsageError
	switch {
	case r.Interrupted:
		return nil
	case errors.As(r.Err, &missing), errors.As(r.Err, &usage), j.Cannot != nil:
		return r.Err
	}
	p := s.under[0]
	s.under = nil
	m, err := s.Runner.Read(r)
	s.pace.is(func(p *pace) { p.done, p.took = p.done+1, p.took+m.Took })
	if err != nil {
		m.Sample = capacity.Sample{
			Verdict: string(results.Unknown),
			Spoilt:  strings.ReplaceAll(err.Error(), "\n", "; "),
		}
	}
	if m.Sample.Spoilt != "" {
		s.Say("%s: unusable run: %s", j.Name, m.Sample.Spoilt)
	}
	m.Sample.Order, m.Sample.Run = s.order, r.Dir
	if m.Sample.InService > 0 && p.busy {
		m.Sample.Outside = new(max(0, 1-m.Sample.InService/float64(p.Users)))
	}
	n := noted{p.Setting, m.Sample, m.Env.Service}
	s.add(n)
	r.Note, err = json.Marshal(n)
	return errors.Join(err, s.write())
}

// noted is the journal's note on a run, beside its verdict: the sample of its point. Service is nil if the run broke.
type noted struct {
	Setting capacity.Setting  `json:"setting"`
	Sample  capacity.Sample   `json:"sample"`
	Service map[string]string `json:"service"`
}

// Results returns the runs of a sweep in the form of a campaign: a sweep older than journals has them only in its
// file.
func Results(old capacity.Sweep) (out []campaign.Result, err error) {
	var all []noted
	for _, p := range old.Points {
		service := maps.Clone(old.Service)
		if p.Policy != "" && service != nil {
			service["lock.retry"] = p.Policy
		}
		for _, one := range p.Samples {
			all = append(all, noted{p.Setting, one, service})
		}
	}
	slices.SortFunc(all, func(a, b noted) int { return a.Sample.Order - b.Sample.Order })
	for _, n := range all {
		note, err := json.Marshal(n)
		if err != nil {
			return nil, err
		}
		out = append(out, campaign.Result{
			Job: Name(n.Setting), Dir: n.Sample.Run,
			Verdict: results.Verdict(n.Sample.Verdict), Note: note,
		})
	}
	return out, nil
}

// add adds a sample to its point.
func (s *Sweep) add(n noted) {
	of := n.Setting
	s.order = max(s.order, n.Sample.Order+1)
	known := slices.ContainsFunc(s.File.Points, func(p capacity.Point) bool { return p.Backend == of.Backend })
	at := slices.IndexFunc(s.File.Points, func(p capacity.Point) bool { return p.Setting == of })
	if at < 0 {
		at = len(s.File.Points)
		s.File.Points = append(s.File.Points, capacity.Point{Setting: of})
	}
	s.File.Points[at].Samples = append(s.File.Points[at].Samples, n.Sample)
	if n.Service == nil {
		return
	}
	if of.Retry != "" {
		s.File.Points[at].Policy = n.Service["lock.retry"]
	}
	if s.File.Service == nil {
		s.File.Service = maps.Clone(n.Service)
	}
	for key, value := range n.Service {
		if _, told := s.File.Service[key]; !told && !known && !strings.HasPrefix(key, "lock.") { // of another service
			s.File.Service[key] = value
		}
	}
	// Values that differ from point to point are in each run's env.json. Another service has other keys.
	maps.DeleteFunc(s.File.Service, func(key, value string) bool {
		v, known := n.Service[key]
		return known &&
			v != value
	})
}

func (s *Sweep) write() error {
	if len(s.File.Points) == 0 {
		return nil
	}
	return capacity.Write(filepath.Join(s.Dir, capacity.File), s.File)
}

// tick reports once a second how far the sweep is.
func (s *Sweep) tick(ctx context.Context) {
	for clock.Sleep(ctx, time.Second) == nil {
		s.tell()
	}
}

func (s *Sweep) tell() {
	if s.Progress != nil {
		s.Progress(s.pace.progress(s.began))
	}
}
