package run

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/lockquake/lockquake/cmd/lockquake/batch"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
)

// runs holds the runs of one command line.
type runs struct {
	*batch.Batch
	flags *runFlags
	list  []candidate

	dir     string            // of the journal
	journal *campaign.Journal // nil for a single run and for jobs: there is nothing to resume
}

// several reports whether there is more than one run to make.
func (f *runFlags) several(list []candidate) bool { return len(list)*f.repeat > 1 }

// begin opens the journal.
func (r *runs) begin(args []string) (err error) {
	f := r.flags
	if !f.several(r.list) && f.resume == "" {
		return nil
	}
	command := cli.CommandOf(f.flags, "run", args, "resume", "out", "format", "verbose", "explain", "budget",
		"metrics-addr", "dry-run", "keep")
	r.dir, r.journal, _, err = batch.Opening{
		Verb: "run", What: "batch of runs", Out: f.out, Resume: f.resume,
		Command: command,
	}.Journal(r.Tell)
	return err
}

// planOf returns the plan of some scenarios.
func (f *runFlags) planOf(list []candidate, repeat int) runPlan {
	p := runPlan{list: list, repeat: repeat, draw: f.seed == 0, beside: map[string]time.Duration{}}
	for _, c := range list {
		if name := c.Provider.Name(); p.beside[name] == 0 {
			p.beside[name] = campaign.CostOf(name, f.out).Beside
		}
	}
	return p
}

// run sets up metrics, calls all to make the runs, and prints the summary.
func (r *runs) run(all func()) (err error) {
	r.Several = len(r.list) != 1
	if r.Metrics, err = r.flags.metrics.Serve(r.Tell, r.flags.verbose); err != nil {
		return err
	}
	if r.Metrics != nil {
		defer r.Metrics.Close()
	}
	for _, c := range r.list {
		if c.cannot == nil { // all candidates use the same service
			if err := r.flags.nodes.Attach.Agree(r.Stop.Ctx, r.Std, c.Options); err != nil {
				return err
			}
			break
		}
	}
	all()
	r.Tell.Close()
	return r.Close()
}

// all makes the runs of a plan, on servers that are kept between runs.
func (r *runs) all(p campaign.Plan, kept *engine.KeptServers) {
	if r.flags.resume != "" {
		for _, done := range r.journal.Results() {
			r.before(done)
		}
	}
	c := campaign.Campaign{Dir: r.dir, Journal: r.journal, Kept: kept, Budget: r.flags.budget, Reader: r.Batch}
	done, err := c.Run(r.Stop.Ctx, p)
	if err != nil {
		r.Fail(err)
		r.Code = cli.Worse(r.Code, cli.ExitCode(err))
	}
	spent := false
	for _, d := range done {
		if r.leave(d) {
			spent = true
		}
	}
	if c.Interrupted || r.Stop.Interrupted() {
		r.Code = cli.Worse(r.Code, cli.CodeInterrupted)
	}
	if r.journal != nil && len(r.journal.Results()) > 0 && (c.Interrupted || spent) {
		r.Tell.Say("to continue: %s --resume %s", r.journal.Header.Command, cli.Quoted(cli.Shorten(r.dir)))
	}
}

// before adds a run from the resumed journal to the table and the exit code.
func (r *runs) before(done campaign.Result) {
	r.Last = filepath.Join(r.dir, done.Dir)
	rep, err := results.ReadReport(r.Last)
	if err != nil { // its directory is gone: use the journal
		rep = results.Report{
			Schema: results.ReportSchema, Scenario: done.Job, Verdict: done.Verdict,
			Reasons: done.Reasons, Judged: done.Judged, Counts: done.Counts, Measures: done.Measures,
		}
	}
	r.Reports, r.Some = append(r.Reports, rep), true
	r.Code = cli.Worse(r.Code, cli.VerdictCode(done.Verdict))
	if done.Broke != "" {
		r.Code = cli.Worse(r.Code, cli.CodeInconclusive)
	}
}

// leave shows a scenario that did not fit into the budget, and reports whether the result is one.
func (r *runs) leave(d campaign.Result) bool {
	if d.NotMade == "" || d.Err != nil {
		return false
	}
	p := runPlan{list: r.list}
	for i, c := range r.list {
		if p.name(i) == d.Job {
			r.Tell.Say("not run: %s: %s", d.Job, d.NotMade)
			if err := r.Show(results.NotRun(checkers.All(), c.Scenario, c.Provider.Name(), d.NotMade)); err != nil {
				r.Fail(err)
			}
		}
	}
	r.Code = cli.Worse(r.Code, cli.CodeInconclusive)
	return true
}

// runPlan makes all runs of one scenario, then those of the next.
type runPlan struct {
	list   []candidate
	repeat int
	draw   bool                     // draw a seed for each run of a scenario without one
	beside map[string]time.Duration // duration of a run without its load, by provider
}

// name returns the job of a scenario. If a scenario is listed several times, the later ones are numbered.
func (p runPlan) name(at int) string {
	name, n := p.list[at].Scenario.Name, 1
	for _, c := range p.list[:at] {
		if c.Scenario.Name == name {
			n++
		}
	}
	if n > 1 {
		name = fmt.Sprintf("%s (%d)", name, n)
	}
	return name
}

// Next returns the next run. A scenario that cannot run here, or that the budget has no time for, is skipped. An
// invalid one ends the plan.
func (p runPlan) Next(done []campaign.Result) (j campaign.Job, ok bool) {
	made, over := map[string]int{}, map[string]bool{}
	for _, r := range done {
		code := cli.ExitCode(r.Err)
		missing := r.NotMade != "" && code == cli.CodeMissing
		if missing && len(p.list) == 1 || r.NotMade != "" && code == cli.CodeUsage {
			return j, false
		}
		made[r.Job]++
		over[r.Job] = over[r.Job] || missing || r.NotMade != "" && r.Err == nil
	}
	for at := range p.list {
		if name := p.name(at); !over[name] && made[name] < p.repeat {
			return p.job(at, made[name]), true
		}
	}
	return j, false
}

// job returns the n-th run of a scenario, from 0.
func (p runPlan) job(at, n int) campaign.Job {
	c := p.list[at]
	j := campaign.Job{Name: p.name(at), Options: c.Options, Cannot: c.cannot, Takes: c.Scenario.Takes()}
	if len(p.list) > 1 && n == 0 {
		j.Title = append(j.Title, fmt.Sprintf("scenario %d of %d: %s", at+1, len(p.list), j.Name))
	}
	if c.cannot != nil {
		return j
	}
	j.Takes += p.beside[c.Provider.Name()]
	if why := p.provider(at); n == 0 && why != p.toldBefore(at) {
		j.Title = append(j.Title, why)
	}
	if p.repeat > 1 {
		j.Title = append(j.Title, fmt.Sprintf("%s, run %d of %d", j.Name, n+1, p.repeat))
	}
	if p.draw && c.Scenario.Run.Seed == 0 {
		j.Seed = batch.DrawSeed()
	}
	return j
}

// toldBefore returns what was printed about the provider for an earlier scenario, or "".
func (p runPlan) toldBefore(at int) string {
	for at--; at >= 0; at-- {
		if p.list[at].cannot == nil {
			return p.provider(at)
		}
	}
	return ""
}

// provider says where a scenario runs, and why.
func (p runPlan) provider(at int) string {
	o := p.list[at].Options
	return "provider " + o.Provider.Name() + ": " + o.ProviderReason
}

// candidate is a scenario to run, or the reason why it cannot run.
type candidate struct {
	engine.Options
	agent  bool // its faults need the agent
	cannot error
}
