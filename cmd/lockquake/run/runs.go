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

// runs are the runs of one command line, under way.
type runs struct {
	*batch.Batch
	flags *runFlags
	list  []candidate

	dir     string            // of the journal
	journal *campaign.Journal // nil: of one run, or of jobs, there is nothing to go on with
}

// several reports whether more than one run is to be made.
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

// planOf is the plan of some scenarios.
func (f *runFlags) planOf(list []candidate, repeat int) runPlan {
	p := runPlan{list: list, repeat: repeat, draw: f.seed == 0, beside: map[string]time.Duration{}}
	for _, c := range list {
		if name := c.Provider.Name(); p.beside[name] == 0 {
			p.beside[name] = campaign.CostOf(name, f.out).Beside
		}
	}
	return p
}

// run sets up metrics, calls all to make the runs, and prints what belongs to all of them.
func (r *runs) run(all func()) (err error) {
	r.Several = len(r.list) != 1
	if r.Metrics, err = r.flags.metrics.Serve(r.Tell, r.flags.verbose); err != nil {
		return err
	}
	if r.Metrics != nil {
		defer r.Metrics.Close()
	}
	for _, c := range r.list {
		if c.cannot == nil { // all are about one service
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

// all makes the runs of a plan, on servers that are kept from run to run.
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
		r.Tell.Say("to go on: %s --resume %s", r.journal.Header.Command, cli.Quoted(cli.Shorten(r.dir)))
	}
}

// before adds a run of the journal to the table and the exit code.
func (r *runs) before(done campaign.Result) {
	r.Last = filepath.Join(r.dir, done.Dir)
	rep, err := results.ReadReport(r.Last)
	if err != nil { // its directory is gone: the journal has what it was about
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

// runPlan is the runs of each scenario, one scenario after another.
type runPlan struct {
	list   []candidate
	repeat int
	draw   bool                     // a seed for each run of a scenario that has none
	beside map[string]time.Duration // a run beside its load, by provider
}

// name is the job of a scenario: one that is named again has a number.
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

// Next is the next run. A scenario that cannot be run here, or for which there is no time, keeps no other from it; what
// is wrong in any other way ends all.
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

// job is the n-th run of a scenario, from 0.
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

// toldBefore is what was said of the provider before a scenario; "": nothing.
func (p runPlan) toldBefore(at int) string {
	for at--; at >= 0; at-- {
		if p.list[at].cannot == nil {
			return p.provider(at)
		}
	}
	return ""
}

// provider says where a scenario is run, and why there.
func (p runPlan) provider(at int) string {
	o := p.list[at].Options
	return "provider " + o.Provider.Name() + ": " + o.ProviderReason
}

// candidate is a scenario to be run, or why it cannot be.
type candidate struct {
	engine.Options
	agent  bool // its faults need the agent
	cannot error
}
