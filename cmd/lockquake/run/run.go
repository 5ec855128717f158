// Package run implements the verb run. It runs scenarios, or jobs from another program, one after another.
package run

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/cmd/lockquake/batch"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/scenarios"
)

// runFlags is the command line of run.
type runFlags struct {
	flags   *pflag.FlagSet
	nodes   nodes.Flags
	lock    string
	set     []string
	seed    uint64
	repeat  int
	fresh   bool
	budget  time.Duration
	out     string
	resume  string
	format  *cli.Format
	keep    bool
	dryRun  bool
	verbose bool
	explain bool
	metrics batch.MetricsFlag
}

const runDoc = `Run executes scenarios one after another and judges each. It writes a run directory for each, with the
history, the verdict and a report. A scenario is one that comes with lockquake (` + "`lockquake list scenarios`" + `), a pattern of
such names ("etcd-*"), or a YAML file. With --lock it may also be a story of the regression suite, such as
suite/late-release (` + "`lockquake list scenarios --suite`" + `).

The last line printed is the directory of the run. Several runs print a table before it, with a row for each scenario. A
scenario that cannot run here is unknown. --format table prints only that table; --format json prints the verdicts, one
object per run. Progress goes to standard error. Ctrl-C heals the faults, tears down, judges the results so far, prints
their table and ends with exit code 130.

The servers of a run are kept for the next run that needs the same ones, if they are verified to be as they were at the
start. Clients and resource are always new. Otherwise the run starts its own servers and reports the reason. With
--fresh each run starts its own.

Several runs have a journal, campaign.jsonl, in a folder of their own. Runs that were interrupted, killed or did not fit
into --budget are made by the same command with --resume.

With - in place of scenarios, jobs are read from standard input, one JSON object per line, each after the previous job:
{"job": "a name", "scenario": "etcd-healthy", "set": ["run.for=5s"], "provider": "local", "repeat": 3}. With --format
json, {"job": "a name", "runs": 3, "code": 0} follows the verdicts of a job. The servers stop when the input ends.`

// Command is the verb run.
func Command(std cli.Streams) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run SCENARIO-NAME-OR-FILE... | -",
		Short: "Run scenarios and judge them",
		Long:  runDoc,
		Example: `  lockquake run etcd-holder-pause
  lockquake run redis-healthy --provider local --set run.for=10s --set workload.clients=4
  lockquake run 'etcd-*' --repeat 20 --format json
  lockquake run suite/late-release --lock redis/redislock`,
		ValidArgsFunction: words.CompleteAnyScenario,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("run: no scenario is given; name one of `lockquake list scenarios`, or a YAML file")
			}
			return nil
		},
	}
	fl := c.Flags()
	f.flags = fl
	f.nodes.Add(c)
	words.AddLock(c, &f.lock)
	fl.StringArrayVar(&f.set, "set", nil,
		"replace a key of the scenario, such as workload.resource.guard=fence; may be repeated")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the run; 0: the scenario's, else random, and recorded")
	fl.IntVar(&f.repeat, "repeat", 1, "run each scenario this many times, keep every run, and end with the worst exit code")
	fl.BoolVar(&f.fresh, "fresh", false,
		"start new servers for every run, instead of keeping those of the previous run that are verified clean")
	fl.DurationVar(&f.budget, "budget", 0, "time limit of several runs, such as 10m; 0: unlimited")
	fl.StringVar(&f.out, "out", "runs", "folder of all runs")
	fl.StringVar(&f.resume, "resume", "",
		"continue the runs in this directory, started by the same command on the same machine")
	fl.BoolVar(&f.keep, "keep", false, "keep the nodes after the run; clean --all removes them")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print schedule, steps and available faults, and start nothing")
	fl.BoolVar(&f.explain, "explain", false,
		"explain in about ten lines what happened, after each verdict")
	f.metrics.Add(fl)
	fl.BoolVarP(&f.verbose, "verbose", "v", false,
		"print all counts, latencies, receipts and versions, and log progress to standard error")
	f.format = cli.AddFormat(c, "text", "json", "table")
	words.CompleteDir(c, "out", "resume")
	c.RunE = func(c *cobra.Command, args []string) error { return f.run(c.Context(), std, args) }
	return c
}

// run checks the whole command line first, so that an invalid one starts nothing.
func (f *runFlags) run(ctx context.Context, std cli.Streams, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	tell := cli.NewProgress(std.Err, f.dryRun)
	defer tell.Close()
	stop := cli.Interruptible(ctx, tell) // before the checks, which may start containers
	defer stop.Done()
	r := runs{flags: f, Batch: &batch.Batch{
		Std: std, Tell: tell, Stop: stop, Format: f.format.Value,
		Explain: f.explain, Whole: f.verbose, Began: clock.ProcessStart(),
	}}
	if f.ofJobs(args) {
		return r.run(func() {
			r.all(&jobsPlan{runs: &r, lines: linesOf(r.Stop.Ctx, std.In, r.Fail), nodes: map[string]*nodes.Source{}},
				f.shared(true))
		})
	}
	nodes, err := f.nodes.Read()
	if err != nil {
		return err
	}
	r.list, err = f.prepare(stop.Ctx, nodes, args, f.set, tell)
	if err = stop.Or(err); err != nil {
		return err
	}
	if len(r.list) == 1 && r.list[0].cannot != nil {
		return r.list[0].cannot
	}
	if f.dryRun {
		return f.plan(std, r.list)
	}
	if err := r.begin(args); err != nil {
		return err
	}
	kept := f.shared(slices.ContainsFunc(r.list, func(c candidate) bool { return c.agent }))
	if !f.several(r.list) {
		kept = nil
	}
	return r.run(func() { r.all(f.planOf(r.list, f.repeat), kept) })
}

// ofJobs reports whether jobs are read from standard input instead of scenarios.
func (f *runFlags) ofJobs(args []string) bool { return len(args) == 1 && args[0] == "-" }

// shared returns the servers that runs keep for each other, or nil if each run starts its own. Agent means that some
// runs need the agent.
func (f *runFlags) shared(agent bool) *engine.KeptServers {
	if f.fresh || f.keep || f.nodes.Attach.File != "" {
		return nil
	}
	return &engine.KeptServers{Agent: agent}
}

func (f *runFlags) check(args []string) error {
	switch {
	case f.repeat < 1:
		return cli.Usagef("--repeat: %d is too few; at least 1", f.repeat)
	case f.budget < 0:
		return cli.Usagef("--budget: %v is negative", f.budget)
	case !f.ofJobs(args):
	case f.format.Value != "json":
		return cli.Usagef("run -: needs --format json")
	case f.dryRun, f.resume != "", f.repeat > 1, f.nodes.Attach.File != "":
		return cli.Usagef("run -: it has no --dry-run, --resume, --repeat or --attach; each job has its own repeat")
	}
	if f.lock != "" && !f.ofJobs(args) && !slices.ContainsFunc(args, nodes.OfSuite) {
		return cli.Usagef("--lock: only for stories of the regression suite, such as suite/late-release; a scenario names its own lock, which --set backend.lock=NAME replaces")
	}
	if f.explain && f.format.Value != "text" {
		return cli.Usagef("--explain: it needs --format text, not %s; `lockquake report --explain RUN-DIR` explains a run afterwards", f.format.Value)
	}
	return f.format.Check()
}

// prepare resolves names, keys and providers, with some keys changed, and checks that each run can be made here. A
// candidate that cannot run holds the reason.
func (f *runFlags) prepare(ctx context.Context, nodes *nodes.Source, args, changed []string,
	tell *cli.Progress,
) ([]candidate, error) {
	nodes.Builder.Tell = tell.Say
	set := changed
	if f.seed != 0 {
		set = append(set[:len(set):len(set)], fmt.Sprintf("run.seed=%d", f.seed))
	}
	program, err := nodes.Flags.Program()
	if err != nil {
		return nil, err
	}
	lock := words.Against{
		Lock: f.lock, Client: program, Set: changed,
		Ask: nodes.Hellos(ctx, cli.Logger(tell, f.verbose)), Tell: tell.Say,
	}
	var out []candidate
	for _, arg := range args {
		found, err := lock.Load(arg)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if s, err = s.With(set); err == nil && len(changed) > 0 {
				s, err = reworded(s, changed)
			}
			if err != nil {
				return nil, err
			}
			o, missing := nodes.Options(ctx, s)
			if missing != nil && (o.Provider == nil || cli.ExitCode(missing) != cli.CodeMissing) {
				return nil, missing
			}
			o.Out, o.Keep, o.Log = f.out, f.keep, cli.Logger(tell, f.verbose)
			nodes.Lock = s.Backend.Use + "/" + s.Backend.Lock
			o.Replay = nodes.Replay(nameOf(arg, s), changed, o.Provider.Name())
			// The file includes what was set.
			o.Drawn = func(file string) string { return nodes.Replay(file, nil, o.Provider.Name()) }
			plan, err := engine.Check(o)
			if missing != nil {
				err = missing
			}
			if err != nil && cli.ExitCode(err) != cli.CodeMissing {
				return nil, err
			}
			out = append(out, candidate{Options: o, agent: err == nil && plan.NeedsAgent(), cannot: err})
		}
	}
	return out, nil
}

// nameOf returns the word that names this scenario on a command line.
func nameOf(arg string, s scenarios.Scenario) string {
	if nodes.OfSuite(arg) {
		return suite.Folder + strings.TrimPrefix(s.Name, "suite-")
	}
	if known, err := scenarios.Load(s.Name); err == nil && len(known) == 1 && known[0].File == s.File {
		return s.Name
	}
	return arg
}

// plan prints the plan of the runs.
func (f *runFlags) plan(std cli.Streams, list []candidate) error {
	var missing error
	for i, o := range list {
		if o.cannot != nil {
			fmt.Fprintf(std.Err, "lockquake: %s: cannot run here: %v\n", o.Scenario.Name, o.cannot)
			missing = cli.Exit{Code: cli.CodeMissing}
			continue
		}
		p, err := engine.Check(o.Options)
		if err != nil {
			return err
		}
		if f.format.Value == "json" {
			if err := cli.WriteJSON(std.Out, p); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(std.Out)
		}
		err = cli.Folded(std.Out, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s\nprovider %s: %s\n", strings.TrimRight(p.Text(), "\n"), o.Provider.Name(),
				o.ProviderReason)
			return err
		})
		if err != nil {
			return err
		}
	}
	return missing
}

// reworded marks the claim of a scenario changed by --set, because the claim describes it as it was before. A claim
// that was set itself stays as it is.
func reworded(s scenarios.Scenario, set []string) (scenarios.Scenario, error) {
	if slices.ContainsFunc(set, func(x string) bool { return strings.HasPrefix(x, "claim=") }) {
		return s, nil
	}
	return s.With([]string{"claim=" + strconv.Quote("claim, before --set: "+s.Claim)})
}
