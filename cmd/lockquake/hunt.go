package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/cmd/lockquake/batch"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/hunt"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// huntFlags is the command line of hunt.
type huntFlags struct {
	flags          *pflag.FlagSet
	where          nodes.Flags
	backend, lock  string
	goals, failOn  []string
	set, corpus    []string
	faults, spared []string
	ttl            time.Duration
	budget, shrink time.Duration
	random         bool
	keep           string
	seed           uint64
	out, resume    string
	verbose        bool
	format         *cli.Format
}

const huntDoc = `Hunt searches for the shortest script of faults that breaks a lock. It makes short runs, one after
another, on servers that it keeps: in each, clients fight over the lock while faults come and named users stop at points
of the recipe. A script whose run shows something new is changed a little and tried again; --random draws every script
instead.

The search ends with the first violation of its first goal, or with --budget. Then the script is made smaller, as long
as it breaks the lock in 9 of 10 runs. The result is a scenario with claim and picture, which 'lockquake run' takes as
it is. If nothing is found, hunt prints what it tried, and the rate below which that proves nothing (docs/hunt.md).

It leaves a directory, whose path is the last line printed: hunt.json, a page (hunt.html), found/GOAL.yaml, and corpus/
with the scripts whose runs showed something new. Ctrl-C reports what there is and ends with exit code 130; --resume
goes on with it. Exit code 1: a goal of --fail-on was reached. 4: no run was judged.`

func huntCommand(std cli.Streams) *cobra.Command {
	var f huntFlags
	c := &cobra.Command{
		Use:   "hunt",
		Short: "Search for the shortest script of faults that breaks a lock",
		Long:  huntDoc,
		Example: `  lockquake hunt --backend redis --lock get-then-del --budget 5m
  lockquake hunt --backend etcd --goal double_grants --budget 10m --fail-on double_grants
  lockquake hunt --backend redis --lock redislock --client 'python3 my_lock.py' --budget 10m`,
		Args: cli.NoArgs,
	}
	fl := c.Flags()
	f.flags = fl
	fl.StringVar(&f.backend, "backend", "", "the backend, such as redis; 'lockquake list backends' has them")
	fl.StringVar(&f.lock, "lock", "", "the lock; not given: the backend's default")
	fl.StringSliceVar(&f.goals, "goal", nil,
		"violation to search for, such as double_grants; may be repeated. Not given: all that the lock can commit, the worst first")
	fl.DurationVar(&f.budget, "budget", 10*time.Minute, "time limit of the search")
	fl.DurationVar(&f.shrink, "shrink-budget", 0,
		"time limit of making the script smaller; 0: the same as the search")
	fl.BoolVar(&f.random, "random", false, "draw every script at random, without feedback: the baseline")
	fl.StringSliceVar(&f.failOn, "fail-on", nil, "goals that set exit code 1 when reached, such as double_grants")
	fl.StringSliceVar(&f.faults, "fault", nil,
		"faults to use, such as pause,partition; not given: all that are available here, except those that stop a monotonic clock")
	fl.StringSliceVar(&f.spared, "without-fault", nil, "faults to leave out, such as clock-jump")
	fl.DurationVar(&f.ttl, "ttl", 0, "TTL of the lease, session or key; 0: drawn for each run, from 500ms to 2s or what the lock supports")
	fl.StringArrayVar(&f.set, "set", nil, "replace a key of the scenarios, such as backend.nodes=5; may be repeated")
	fl.StringArrayVar(&f.corpus, "corpus", nil,
		"scripts to try first: the directory of another hunt, or a scenario in a YAML file; may be repeated")
	fl.StringVar(&f.keep, "keep", "2GB", "disk space limit for runs that showed something new, such as 500MB; their scripts stay")
	f.where.Add(c)
	fl.Uint64Var(&f.seed, "seed", 0, "random seed; 0: random, and recorded")
	fl.StringVar(&f.out, "out", "runs", "folder of all runs")
	fl.StringVar(&f.resume, "resume", "",
		"continue the hunt in this directory, started by the same command on the same machine")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log progress to standard error")
	f.format = cli.AddFormat(c, "text", "json")
	words.CompleteBackendAndLock(c)
	for _, name := range []string{"goal", "fail-on"} {
		words.CompleteFlag(c, name, cobra.FixedCompletions(hunt.GoalNames(), cobra.ShellCompDirectiveNoFileComp))
	}
	words.CompleteDir(c, "out", "resume")
	c.RunE = func(c *cobra.Command, _ []string) error { return f.run(c.Context(), std) }
	return c
}

// huntRun is a hunt under way.
type huntRun struct {
	*huntFlags
	std     cli.Streams
	tell    *cli.Progress
	stop    cli.Interrupt
	nodes   *nodes.Source
	backend listed.Backend
	hunt    hunt.Hunt
	journal *campaign.Journal
	result  hunt.Result
	base    engine.Options
}

// run checks the whole command line first, so that an invalid one starts nothing.
func (f *huntFlags) run(ctx context.Context, std cli.Streams) error {
	tell := cli.NewProgress(std.Err, false)
	defer tell.Close()
	r := huntRun{huntFlags: f, std: std, tell: tell, stop: cli.Interruptible(ctx, tell)}
	defer r.stop.Done()
	if err := r.stop.Or(r.prepare()); err != nil {
		return err
	}
	(&batch.Batch{Tell: tell, Stop: r.stop}).Sweep(r.base)
	c := campaign.Campaign{
		Dir: r.hunt.Keep.Dir, Journal: r.journal, Kept: &engine.KeptServers{Agent: true}, Reader: &r.hunt,
	}
	_, err := c.Run(r.stop.Ctx, &r.hunt)
	err = errors.Join(err, r.hunt.Err, r.hunt.Keep.Close())
	r.result.Interrupted = c.Interrupted
	tell.Close()
	return r.report(err)
}

// prepare reads the command line, finds the faults that can be injected here, and opens the journal.
func (r *huntRun) prepare() (err error) {
	if err := r.format.Check(); err != nil {
		return err
	}
	switch {
	case r.budget <= 0:
		return cli.Usagef("--budget: %v is too short", r.budget)
	case r.shrink < 0, r.ttl < 0:
		return cli.Usagef("hunt: --shrink-budget and --ttl are not negative")
	}
	if r.hunt.Keep.Most, err = bytesOf(r.keep); err != nil {
		return err
	}
	if r.nodes, err = r.where.Read(); err != nil {
		return err
	}
	r.nodes.Builder.Tell = r.tell.Say
	lock, err := r.find()
	if err != nil {
		return err
	}
	if err := r.aims(lock); err != nil {
		return err
	}
	if err := r.space(lock); err != nil {
		return err
	}
	return r.open()
}

// find returns the lock that the flags name.
func (r *huntRun) find() (backends.Lock, error) {
	if r.huntFlags.backend == "" {
		return backends.Lock{}, cli.Usagef("hunt: no lock is given, such as --backend redis --lock set-px-lua; `lockquake list locks` lists them")
	}
	if r.lock == "*" {
		return backends.Lock{}, cli.Usagef("hunt: name one lock, not all of them")
	}
	known := r.nodes.Catalog.Backends
	b, locks, err := suite.Locks(r.huntFlags.backend, r.lock, listed.Clients(known))
	if err != nil {
		return backends.Lock{}, cli.Usagef("hunt: %v; `lockquake list locks` lists them all", err)
	}
	r.backend = known[slices.IndexFunc(known, func(x listed.Backend) bool { return x.Name == b.Name })]
	return locks[0], nil
}

// aims parses the goals.
func (r *huntRun) aims(lock backends.Lock) (err error) {
	target := hunt.Target{Lock: lock, Servers: r.backend.Servers}
	if r.hunt.Goals, err = hunt.Goals(r.goals, target); err != nil {
		return cli.Usagef("--goal: %v", err)
	}
	wanted, err := hunt.Goals(r.failOn, target)
	if err != nil {
		return cli.Usagef("--fail-on: %v", err)
	}
	for _, g := range wanted {
		if len(r.failOn) > 0 && !slices.ContainsFunc(r.hunt.Goals, func(x hunt.Goal) bool { return x.Name == g.Name }) {
			return cli.Usagef("--fail-on: %s is not a --goal of this hunt", g.Name)
		}
	}
	return nil
}

// usualTTL is short, so that grants can expire and be followed by others within one run.
const usualTTL = time.Second

// longestTTL is the longest that is tried when a shorter one is refused and none is asked for.
const longestTTL = 4 * time.Second

// lay makes the scenario that every script changes, and checks it.
func (r *huntRun) lay(lock backends.Lock, ttl time.Duration) error {
	name := fmt.Sprintf("hunt-%s-%s", r.backend.Name, lock.Name)
	base, err := scenarios.Parse(fmt.Appendf(nil, baseText, name, r.backend.Name, lock.Name, ttl), "hunt.yaml")
	if err == nil {
		base, err = base.With(r.set)
	}
	if err != nil {
		return err
	}
	if r.base, err = r.nodes.Options(r.stop.Ctx, base); err != nil {
		return err
	}
	r.base.Log = cli.Logger(r.tell, r.verbose)
	r.base.Replay = r.nodes.Replay(results.FileScenario, nil, r.base.Provider.Name())
	_, err = engine.Check(r.base)
	return err
}

// space determines what scripts can do to the lock on this machine.
func (r *huntRun) space(lock backends.Lock) error {
	ttl := cmp.Or(r.ttl, max(usualTTL, lock.MinTTL))
	if first := r.lay(lock, ttl); first != nil {
		err := first
		for err != nil && r.ttl == 0 && ttl < longestTTL { // a service may keep no lease as short as that
			ttl *= 2
			err = r.lay(lock, ttl)
		}
		if err != nil {
			return first
		}
	}
	base := r.base.Scenario
	hellos, err := r.nodes.Hellos(r.stop.Ctx, r.base.Log)(base)
	if err != nil {
		return err
	}
	asked := script.Asked{
		Request: r.base.Request, TTL: r.ttl > 0,
		Takes: func(order string) bool {
			return !slices.ContainsFunc(hellos, func(h *wire.Hello) bool { return !h.Takes(order) })
		},
		Patient: slices.ContainsFunc(r.hunt.Goals, func(g hunt.Goal) bool { return g.Waits }),
	}
	for i, hello := range hellos {
		if i == 0 {
			asked.Announced = slices.Clone(hello.Points)
		}
		// keep the points that all clients announce
		asked.Announced = slices.DeleteFunc(asked.Announced, func(p string) bool {
			return !slices.Contains(hello.Points, p)
		})
	}
	space, refused, err := script.NewSpace(r.stop.Ctx, asked)
	if err != nil {
		return err
	}
	if err := r.narrow(&space); err != nil {
		return err
	}
	r.result.Refused = hunt.Lacking(refused)
	cost := campaign.CostOf(r.base.Provider.Name(), r.out)
	if least := space.Shortest + cost.Beside; r.budget < least {
		return cli.Usagef("--budget: %v is shorter than one run, which takes about %v", r.budget, least.Round(100*time.Millisecond))
	}
	h := &r.hunt
	h.Scripts, h.Random = space, r.random
	h.Budget, h.ShrinkBudget = r.budget, cmp.Or(r.shrink, r.budget)
	h.Takes = func(load time.Duration) time.Duration { return load + cost.Beside }
	h.Options = func(s scenarios.Scenario) engine.Options {
		o := r.base
		o.Scenario = s
		return o
	}
	h.Tell = r.tell.Update
	if h.Seeds, err = r.seeds(space); err != nil {
		return err
	}
	r.result.Backend, r.result.Lock, r.result.Provider = r.backend.Name, lock.Name, r.base.Provider.Name()
	return nil
}

// narrow leaves the faults that are asked for. One that stops a monotonic clock has to be: every lock trusts it.
func (r *huntRun) narrow(space *script.Space) error {
	for _, name := range slices.Concat(r.faults, r.spared) {
		if _, known := chaos.Lookup(r.nodes.Catalog.Faults, name); !known {
			return cli.Usagef("hunt: there is no fault %q; `lockquake list faults` lists them", name)
		}
	}
	space.Faults = slices.DeleteFunc(space.Faults, func(f script.Fault) bool {
		asked := slices.Contains(r.faults, f.Kind.Name) || len(r.faults) == 0 && !f.Kind.StopsClock
		return !asked || slices.Contains(r.spared, f.Kind.Name)
	})
	if len(r.faults) > 0 && len(space.Faults) == 0 {
		return chaos.Unavailable{What: "--fault " + strings.Join(r.faults, ","), Reason: "none of them is available here"}
	}
	return nil
}

// seeds reads the scripts to try first.
func (r *huntRun) seeds(space script.Space) (out []script.Script, err error) {
	for _, name := range r.corpus {
		if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" {
			scripts, err := hunt.ScriptsOf(name)
			if err != nil {
				return nil, cli.Usagef("--corpus: %v", err)
			}
			out = append(out, scripts...)
			continue
		}
		list, err := scenarios.Load(name)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			x, err := space.Read(s)
			if err != nil {
				return nil, cli.Usagef("--corpus: %s: %v", name, err)
			}
			out = append(out, x)
		}
	}
	return out, nil
}

// baseText is the scenario on which every script is laid.
const baseText = `name: %s
claim: A script of a hunt.
backend: {use: %s, lock: %s, ttl: %v}
workload: {use: counter, clients: 1, users: 1, resource: {use: register, guard: none}}
run: {for: 2s, settle: 200ms}
expect: {judged: ">=1"}
`

// open opens the journal.
func (r *huntRun) open() (err error) {
	opening := batch.Opening{
		Verb: "hunt", What: "hunt", Out: r.out, Resume: r.resume, Seeded: true, Seed: r.seed,
		Command: cli.CommandOf(r.flags, "hunt", nil, "resume", "seed", "out", "format", "verbose", "budget", "shrink-budget",
			"fail-on", "keep"),
	}
	h := &r.hunt
	if h.Keep.Dir, r.journal, h.Seed, err = opening.Journal(r.tell); err != nil {
		return err
	}
	r.result.Origin, r.base.Out = r.journal.Header.Origin, h.Keep.Dir
	r.tell.Say("provider %s: %s", r.base.Provider.Name(), r.base.ProviderReason)
	return nil
}

// bytesOf parses a size in bytes.
func bytesOf(text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0, cli.Usagef("--keep: %q is no size, such as 500MB or 2GB", text)
	}
	return int64(n), nil
}

// report prints and writes the result, and returns the exit code as an error.
func (r *huntRun) report(failed error) error {
	r.hunt.Fill(&r.result)
	switch {
	case r.result.Runs > 0:
	case failed == nil && r.result.Interrupted:
		return cli.Exit{Code: cli.CodeInterrupted}
	case failed == nil:
		return errors.New("no drawn script fits into the budget")
	default:
		return failed
	}
	dir := r.hunt.Keep.Dir
	err := errors.Join(r.hunt.HandOut(), r.result.Write(dir), r.drawRuns())
	page := filepath.Join(dir, hunt.FileReport)
	if e := cli.DrawPage(page, func(w io.Writer) error { return r.result.HTML(w, dir) }); e != nil {
		cli.Complain(r.std.Err, e) // the figures are valid without the page
	}
	if r.format.Value == "json" {
		err = errors.Join(err, cli.WriteJSON(r.std.Out, r.result))
	} else {
		err = errors.Join(err, cli.Folded(r.std.Out, func(w io.Writer) error {
			return r.result.Text(w, cli.Shorten(dir))
		}))
		fmt.Fprintf(r.std.Out, "\nreport  %s\n%s\n", cli.Shorten(page), cli.Shorten(dir))
	}
	cli.Complain(r.std.Err, failed)
	cli.Complain(r.std.Err, err)
	code := max(cli.ExitCode(failed), cli.ExitCode(err))
	switch {
	case r.result.Interrupted:
		code = cli.CodeInterrupted
	case slices.ContainsFunc(r.failOn, r.result.Found):
		code = cli.Worse(code, cli.CodeFailed)
	case len(r.result.Findings) == 0 && r.result.Unknown == r.result.Runs:
		code = cli.Worse(code, cli.CodeInconclusive)
	}
	if code != cli.CodeMet {
		return cli.Exit{Code: code}
	}
	return nil
}

// drawRuns draws the reports of the runs to which the page links.
func (r *huntRun) drawRuns() (err error) {
	var dirs []string
	for _, f := range r.result.Findings {
		dirs = append(dirs, f.Dir)
	}
	if x := r.result.Shrunk; x.HandedOut() {
		dirs = append(dirs, x.RunDir)
	}
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		dir = filepath.Join(r.hunt.Keep.Dir, dir)
		if rep, e := results.ReadReport(dir); e == nil {
			err = errors.Join(err, cli.DrawReport(dir, rep))
		}
	}
	return err
}
