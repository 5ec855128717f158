package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/cmd/lockquake/batch"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/results"
)

// suiteFlags is the command line of suite.
type suiteFlags struct {
	flags                 *pflag.FlagSet
	where                 nodes.Flags
	set, stories          []string
	ttl, budget           time.Duration
	repeat, most          int
	seed                  uint64
	out, resume, baseline string
	quick, dryRun         bool
	verbose               bool
	format                *cli.Format
}

const suiteDoc = `Suite runs stories against locks and prints a table of the results. A lock is BACKEND (its default lock),
BACKEND/LOCK, or "BACKEND/*". The lock's features select its default suite: contention, many short holds, renewals, late
releases, crashes, a cut in each call, paused holders, moved clocks. A FILE.yaml names locks, stories, random chaos,
your own clients and bounds (docs/suites.md).

The number of cells and the estimated time are printed first. Cells that do not fit into --budget, or that this machine
cannot deliver, are listed as "not run" with the reason. Servers are kept from cell to cell. With --repeat, a cell is
red if one of its runs is: "red 2 of 5". A cell that the machine disturbed is unknown.

Suite leaves a directory with suite.json, junit.xml, summary.md and the directories of all runs. Its path is the last
line printed. Ctrl-C reports the results so far and ends with exit code 130; --resume continues.

Exit code 1: a cell is red; with --baseline, a cell is red that was green there, or costs more. 4: a cell is unknown, or
cannot be delivered here. 3: no cell can be delivered.`

func suiteCommand(std cli.Streams) *cobra.Command {
	var f suiteFlags
	c := &cobra.Command{
		Use:   "suite FILE.yaml | LOCK...",
		Short: "Run the stories that apply to locks",
		Long:  suiteDoc,
		Example: `  lockquake suite redis etcd/mutex --quick
  lockquake suite redis/set-px-lua --client 'python3 my_lock.py' --budget 10m --format junit >junit.xml
  lockquake suite suite.yaml --repeat 5 --baseline runs/suite-20261124T080000.000-7`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("suite: no lock is given: name one, such as redis or redis/set-px-lua, or a YAML file; `lockquake list locks` lists them")
			}
			return nil
		},
	}
	c.ValidArgsFunction = words.CompleteLock(cobra.ShellCompDirectiveDefault)
	fl := c.Flags()
	f.flags = fl
	fl.StringArrayVar(&f.stories, "story", nil,
		`a story instead of the default suite: its name, a pattern such as "late-*", "quick", a scenario, or a YAML file; may be repeated`)
	fl.BoolVar(&f.quick, "quick", false, "only the quick stories, with short runs and few users; at most 8 per lock")
	fl.IntVar(&f.most, "most", 0, "at most this many stories per lock; 0: all, or 8 with --quick")
	fl.IntVar(&f.repeat, "repeat", 0, "runs of each cell; 0: the file's number, else 1")
	fl.DurationVar(&f.budget, "budget", 0,
		"time limit of the whole, such as 10m; 0: unlimited. Not given: the limit in the file, else 25m if neither stories nor repeats are named")
	fl.DurationVar(&f.ttl, "ttl", 0, "TTL of the lease, session or key; 0: the file's, else 2s, or the shortest that the lock supports")
	fl.StringArrayVar(&f.set, "set", nil, "replace a key of every scenario, such as backend.nodes=5; may be repeated")
	f.where.Add(c)
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the first run of each cell, plus one for each further run; 0: random for each run, and recorded")
	fl.StringVar(&f.out, "out", "runs", "folder of all runs")
	fl.StringVar(&f.resume, "resume", "",
		"continue the suite in this directory, started by the same command on the same machine")
	fl.StringVar(&f.baseline, "baseline", "",
		"the directory of an earlier suite; exit code 1 then means that a cell is red that was green there")
	fl.BoolVar(&f.dryRun, "dry-run", false,
		"list the cells and the stories that do not apply, and start no run. Of a client of your own, only the features are asked. --format json includes the scenario of each cell")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log progress to standard error")
	f.format = cli.AddFormat(c, "text", "json", "junit", "markdown")
	words.CompleteFlag(c, "story", words.CompleteStory)
	words.CompleteDir(c, "out", "resume", "baseline")
	c.RunE = func(c *cobra.Command, args []string) error { return f.run(c.Context(), std, args) }
	return c
}

// suiteRun is a suite in progress.
type suiteRun struct {
	*suiteFlags
	std     cli.Streams
	tell    *cli.Progress
	stop    cli.Interrupt
	nodes   *nodes.Source
	config  suite.Config
	dir     string
	journal *campaign.Journal
	start   time.Duration // estimated time that servers take to start
	before  *suite.Result // the baseline; nil: none
	result  suite.Result
}

// run checks the whole command line first, so that an invalid one starts nothing.
func (f *suiteFlags) run(ctx context.Context, std cli.Streams, args []string) error {
	tell := cli.NewProgress(std.Err, f.dryRun)
	defer tell.Close()
	r := suiteRun{suiteFlags: f, std: std, tell: tell, stop: cli.Interruptible(ctx, tell)}
	defer r.stop.Done()
	if err := r.stop.Or(r.prepare(args)); err != nil {
		return err
	}
	options, err := r.check(r.stop.Ctx)
	if err = r.stop.Or(err); err != nil {
		return err
	}
	for _, o := range options {
		if o.Provider != nil {
			r.start = campaign.CostOf(o.Provider.Name(), r.out).Start
		}
	}
	suite.Fit(r.result.Cells, r.config.Most, r.result.Repeat, r.config.Budget, r.start)
	r.announce()
	if f.dryRun {
		return r.list()
	}
	code := r.runAll(options)
	tell.Close()
	return r.report(code)
}

// prepare reads the command line and the files it names, and makes the cells.
func (r *suiteRun) prepare(args []string) (err error) {
	if err := r.format.Check(); err != nil {
		return err
	}
	if r.repeat < 0 || r.most < 0 || r.budget < 0 || r.ttl < 0 {
		return cli.Usagef("suite: --repeat, --most, --budget and --ttl are not negative")
	}
	command := r.command(args) // before read, which moves --client into the rows
	if r.config, err = r.read(args); err != nil {
		return err
	}
	if r.nodes, err = r.where.Read(); err != nil {
		return err
	}
	r.nodes.Builder.Tell = r.tell.Say
	if r.nodes.Attached != nil {
		return cli.Usagef("--attach: the stories break servers, and attached servers are not ours to break; `lockquake run` takes scenarios that do not")
	}
	if r.baseline != "" {
		before, err := readSuite("--baseline", r.baseline)
		if err != nil {
			return err
		}
		r.before = &before
	}
	cells, err := suite.Plan(r.config, r.nodes.Catalog.Backends,
		r.nodes.Hellos(r.stop.Ctx, cli.Logger(r.tell, r.verbose)))
	switch {
	case errors.Is(err, suite.ErrNoLock):
		return cli.Usagef("suite: %v; `lockquake list locks` lists them all", err)
	case err != nil:
		return err
	}
	r.dir, r.journal, _, err = batch.Opening{
		Verb: "suite", What: "suite", Out: r.out, Resume: r.resume,
		Command: command, Older: olderSuite,
	}.Journal(r.tell)
	if err != nil {
		return err
	}
	r.result = suite.Result{
		Schema: suite.Schema, Origin: r.journal.Header.Origin, Repeat: max(1, r.config.Repeat),
		Cells: cells,
	}
	r.result.Fill(r.journal.Results())
	return nil
}

// olderSuite reads a suite of a release that wrote no journal. Its runs are in suite.json.
func olderSuite(dir string) (results.Origin, []campaign.Result, error) {
	old, err := suite.Read(dir)
	return old.Origin, old.Results(), err
}

// readSuite reads an earlier suite that a flag names.
func readSuite(flag, dir string) (suite.Result, error) {
	old, err := suite.Read(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return old, cli.Usagef("%s: %s is not the directory of a suite: it has no %s", flag, dir, suite.File)
	case err != nil:
		return old, cli.Usagef("%s: %v", flag, err)
	}
	return old, nil
}

// read returns the configuration from the file or from the arguments, with the flags applied.
func (r *suiteRun) read(args []string) (c suite.Config, err error) {
	isFile := func(arg string) bool { return strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") }
	switch {
	case len(args) == 1 && isFile(args[0]):
		data, err := history.ReadFile(args[0], history.MostText)
		if err != nil {
			return c, cli.Usagef("suite: %v", err)
		}
		if c, err = suite.ReadFile(data, args[0]); err != nil {
			return c, err
		}
	case slices.ContainsFunc(args, isFile):
		return c, cli.Usagef("suite: name one file or locks, not both")
	}
	if len(c.Locks) == 0 {
		for _, arg := range args {
			backend, lock, _ := strings.Cut(arg, "/")
			c.Locks = append(c.Locks, suite.Row{Backend: backend, Lock: lock})
		}
	}
	set := r.set
	client, err := r.where.Program()
	if err != nil {
		return c, err
	}
	if client != nil {
		for i := range c.Locks {
			c.Locks[i].Client = client
		}
		r.where.Clients = nil // it is in the rows now
	}
	for i := range c.Locks {
		c.Locks[i].Set = append(slices.Clone(c.Locks[i].Set), set...)
	}
	c.Repeat, c.TTL, c.Most = cmp.Or(r.repeat, c.Repeat), cmp.Or(r.ttl, c.TTL), cmp.Or(r.most, c.Most)
	if len(r.stories) > 0 {
		c.Stories, c.Random = r.stories, nil
		for i := range c.Locks {
			c.Locks[i].Stories = nil
		}
	}
	if c.Quick = r.quick; r.quick {
		const most = 8
		c.Most = cmp.Or(c.Most, most)
		if len(c.Stories) == 0 {
			c.Stories = []string{"quick"}
		}
	}
	switch {
	case r.flags.Changed("budget"):
		c.Budget = r.budget
	case c.Budget == 0:
		c.Budget = c.UsualBudget()
	}
	return c, nil
}

// command returns the command that repeats the suite.
func (r *suiteRun) command(args []string) string {
	return cli.CommandOf(r.flags, "suite", args, "resume", "out", "format", "verbose", "budget", "baseline", "dry-run")
}

// check determines which cells can run here, and with which options.
func (r *suiteRun) check(ctx context.Context) ([]engine.Options, error) {
	out := make([]engine.Options, len(r.result.Cells))
	for i := range r.result.Cells {
		c := &r.result.Cells[i]
		if c.Apart != "" || c.NotRun != "" {
			continue
		}
		o, err := r.nodes.Options(ctx, c.Scenario)
		if err == nil {
			o.Out, o.Log = r.dir, cli.Logger(r.tell, r.verbose)
			o.Replay = r.nodes.Replay(results.FileScenario, nil, o.Provider.Name())
			o.Drawn = func(file string) string { return r.nodes.Replay(file, nil, o.Provider.Name()) }
			err = r.tryOn(c, o)
		}
		var missing engine.MissingError
		switch {
		case errors.As(err, &missing) || err != nil && c.Foreign:
			c.NotRun, c.Missing = cli.InOneLine(err), true
		case err != nil:
			return nil, fmt.Errorf("%s, %s: %w", c.Lock, c.Story, err)
		}
		out[i] = o
	}
	return out, nil
}

// tryOn checks a cell, and notes what its story needs and the clients lack.
func (r *suiteRun) tryOn(c *suite.Cell, o engine.Options) error {
	plan, err := engine.Check(o)
	if err != nil {
		return err
	}
	if err := engine.Lacks(plan, c.Hellos); err != nil {
		c.Apart, _, _ = strings.Cut(err.Error(), "\n") // without the line of the story and its caret
	}
	return nil
}

// announce prints what will run, an estimate of the time, and what will not run. A dry run in text form prints this on
// standard output.
func (r *suiteRun) announce() {
	say, list := r.tell.Say, r.dryRun && r.format.Value != "json"
	if list {
		say = func(format string, args ...any) { fmt.Fprintf(r.std.Out, format+"\n", args...) }
	}
	due := 0
	for _, c := range r.result.Cells {
		switch {
		case c.Apart != "":
			if list || r.verbose {
				say("does not apply: %s, %s: %s", c.Lock, c.Story, c.Apart)
			}
		case c.NotRun != "":
			say("not run: %s, %s: %s", c.Lock, c.Story, c.NotRun)
		default:
			due++
			if list {
				say("%s, %s: %s", c.Lock, c.Story, c.Claim)
			}
		}
	}
	s := r.result.Sums()
	say("cells: %d of %d, each run %d times, about %v; %d more do not apply",
		due, len(r.result.Cells)-s.Apart, r.result.Repeat,
		suite.Takes(r.result.Cells, r.result.Repeat, r.start).Round(time.Second), s.Apart)
}

// list prints the cells as JSON if requested. Cells that can run have their scenarios.
func (r *suiteRun) list() error {
	if r.format.Value != "json" {
		return nil // announce has printed them
	}
	for i := range r.result.Cells {
		if c := &r.result.Cells[i]; c.Apart == "" && c.NotRun == "" {
			c.Text = string(c.Scenario.Text)
		}
	}
	return cli.WriteJSON(r.std.Out, r.result)
}

// runAll makes the runs. It returns the exit code for errors other than verdicts.
func (r *suiteRun) runAll(options []engine.Options) int {
	b := suiteReader{&batch.Batch{
		Std: r.std, Tell: r.tell, Stop: r.stop, Format: "table", Several: true,
		Began: clock.ProcessStart(),
	}}
	c := campaign.Campaign{
		Dir: r.dir, Journal: r.journal, Kept: &engine.KeptServers{Agent: true},
		Budget: r.config.Budget, Reader: b,
	}
	done, err := c.Run(r.stop.Ctx, suite.Runs{Result: &r.result, Options: options, Seed: r.drawn})
	b.Fail(err)
	r.result.Fill(done)
	if r.result.Interrupted = c.Interrupted; c.Interrupted {
		r.leave()
		return cli.CodeInterrupted
	}
	return cli.ExitCode(err)
}

// drawn returns the seed of the n-th run (from 0) of a cell whose story has none.
func (r *suiteRun) drawn(n int) uint64 {
	if r.seed == 0 {
		return batch.DrawSeed()
	}
	return r.seed + uint64(n)
}

// suiteReader shows the runs of a suite. Its table consists of cells, not runs.
type suiteReader struct{ *batch.Batch }

// End shows a run and drops its report, because there may be many.
func (s suiteReader) End(j campaign.Job, r *campaign.Result) error {
	err := s.Batch.End(j, r)
	s.Reports = nil
	return err
}

// leave marks all cells without a run as not run.
func (r *suiteRun) leave() {
	for i := range r.result.Cells {
		if c := &r.result.Cells[i]; c.State() == suite.NotRun && c.NotRun == "" {
			c.NotRun = "interrupted"
		}
	}
}

// report writes the suite, prints it, and returns the exit code as an error.
func (r *suiteRun) report(code int) error {
	if err := r.result.Write(r.dir); err != nil {
		return err
	}
	var x *suite.Comparison
	if r.before != nil {
		x = &suite.Comparison{Now: r.result, Baseline: *r.before}
	}
	if err := r.result.WriteReports(r.dir, x); err != nil {
		return err
	}
	var out bytes.Buffer
	var err error
	switch r.format.Value {
	case "json":
		err = cli.WriteJSON(&out, r.result)
	case "junit":
		err = r.result.JUnit(&out, x)
	case "markdown":
		err = r.result.Markdown(&out)
	default:
		err = r.result.Text(&out)
	}
	if err == nil && x != nil {
		if r.format.Value == "text" {
			err = x.Text(&out)
		} else {
			err = x.Text(r.std.Err)
		}
	}
	switch {
	case err != nil:
	case r.format.Value == "text":
		fmt.Fprintln(&out, cli.Shorten(r.dir))
		err = cli.PrintFolded(r.std.Out, out.String())
	default:
		_, err = r.std.Out.Write(out.Bytes())
	}
	if err != nil {
		return err
	}
	if code = cli.Worse(code, r.code(x)); code != cli.CodeMet {
		return cli.Exit{Code: code}
	}
	return nil
}

// code returns the exit code of the results.
func (r *suiteRun) code(x *suite.Comparison) int {
	s := r.result.Sums()
	ran := s.Green + s.Red + s.Unknown
	switch {
	case ran == 0 && s.Missing > 0:
		return cli.CodeMissing
	case ran == 0:
		return cli.CodeInconclusive
	}
	if x != nil {
		regressions, unanswered := x.Regressions()
		switch {
		case regressions > 0:
			return cli.CodeFailed
		case unanswered > 0:
			return cli.CodeInconclusive
		}
		return cli.CodeMet
	}
	switch {
	case s.Red > 0:
		return cli.CodeFailed
	case s.Unknown > 0 || s.Missing > 0:
		return cli.CodeInconclusive
	}
	return cli.CodeMet
}
