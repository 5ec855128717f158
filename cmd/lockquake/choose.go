package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/cmd/lockquake/batch"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/choose"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// chooseFlags is the command line of choose.
type chooseFlags struct {
	flags    *pflag.FlagSet
	where    nodes.Flags
	quick    bool
	repeat   int
	measured time.Duration
	seed     uint64
	budget   time.Duration
	out      string
	resume   string
	verbose  bool
	format   *cli.Format
}

const chooseDoc = `Choose compares locks, to help you pick one. It runs the same load on each: 32 users on one lock, then on
64. Then it kills a server: the leader, the server that has a lock, or one of several equal ones.

It prints a table: grants per second, acquire latency, handoff, requests per grant, unavailability after the loss of the
server, whether grants carry a fencing token, and the stories that break the lock. docs/choosing.md interprets it.

Without arguments it compares all correct locks; --quick takes one per topology. BACKEND names its default lock,
BACKEND/LOCK another one, "BACKEND/*" all. The estimated time is printed first.

Choose leaves a directory with choose.json, a page (choose.html) and the directories of all runs. Its path is the last
line printed. Ctrl-C reports the results so far and ends with exit code 130; --resume continues. Exit code 4: a lock
could not be run, or the loss of its server was not judged.`

func chooseCommand(std cli.Streams) *cobra.Command {
	var f chooseFlags
	c := &cobra.Command{
		Use:   "choose [LOCK...]",
		Short: "Compare locks: their load, the loss of a server, what breaks them",
		Long:  chooseDoc,
		Example: `  lockquake choose --quick
  lockquake choose redis/redislock redis/redsync etcd zookeeper --format markdown`,
	}
	c.ValidArgsFunction = words.CompleteLock(cobra.ShellCompDirectiveNoFileComp)
	fl := c.Flags()
	f.flags = fl
	fl.BoolVar(&f.quick, "quick", false, "one lock per topology, and one run per load")
	fl.IntVar(&f.repeat, "repeat", 0, "runs of each load; 0: 3, or with --quick 1")
	fl.DurationVar(&f.measured, "for", 3*time.Second, "measured duration of each load, after its warm-up")
	f.where.Add(c)
	fl.Uint64Var(&f.seed, "seed", 0, "random seed; 0: random, and recorded")
	fl.DurationVar(&f.budget, "budget", 0, "time limit of the whole, such as 10m; 0: unlimited")
	fl.StringVar(&f.out, "out", "runs", "folder of all runs")
	fl.StringVar(&f.resume, "resume", "",
		"continue the choose in this directory, started by the same command on the same machine")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log progress to standard error")
	f.format = cli.AddFormat(c, "text", "json", "markdown")
	words.CompleteDir(c, "out", "resume")
	c.RunE = func(c *cobra.Command, args []string) error { return f.run(c.Context(), std, args) }
	return c
}

// run checks the whole command line first, so that an invalid one starts nothing.
func (f *chooseFlags) run(ctx context.Context, std cli.Streams, args []string) error {
	switch {
	case f.repeat < 0:
		return cli.Usagef("--repeat: %d is negative", f.repeat)
	case f.budget < 0:
		return cli.Usagef("--budget: %v is negative", f.budget)
	case f.measured < 100*time.Millisecond:
		return cli.Usagef("--for: %v is too short; at least 100ms", f.measured)
	}
	if err := f.format.Check(); err != nil {
		return err
	}
	tell := cli.NewProgress(std.Err, false)
	defer tell.Close()
	nodes, err := f.where.Read()
	if err != nil {
		return err
	}
	if nodes.Attached != nil {
		return cli.Usagef("--attach: choose kills a server, and attached servers are not ours to kill; `lockquake capacity --attach` measures their load")
	}
	rows, err := chooseRows(nodes.Catalog, args, f.quick)
	if err != nil {
		return err
	}
	once := cmp.Or(f.repeat, 3)
	if f.quick {
		once = cmp.Or(f.repeat, 1)
	}
	open := batch.Opening{
		Verb: "choose", What: "choose", Out: f.out, Resume: f.resume, Seeded: true, Seed: f.seed,
		Command: cli.CommandOf(f.flags, "choose", args, "seed", "out", "resume", "budget", "format", "verbose"),
	}
	dir, journal, drawn, err := open.Journal(tell)
	if err != nil {
		return err
	}
	result := &choose.Result{
		Schema: choose.Schema, Origin: journal.Header.Origin, Seed: drawn, Users: choose.Users,
		Measured: int64(f.measured), Repeat: once,
	}
	r := choose.Run{
		Dir: dir, Journal: journal, Budget: f.budget, Kept: &engine.KeptServers{Agent: true}, Say: tell.Say,
		Result: result,
	}
	stop := cli.Interruptible(ctx, tell)
	defer stop.Done()
	list, err := f.candidates(stop.Ctx, nodes, rows, func(o *engine.Options) {
		o.Log, o.Out, o.Progress, result.Provider = cli.Logger(tell, f.verbose), r.Dir, tell.Update, o.Provider.Name()
		o.Replay = nodes.Replay(results.FileScenario, nil, o.Provider.Name())
	})
	if err = stop.Or(err); err != nil {
		return err
	}
	r.Cost = campaign.CostOf(result.Provider, f.out)
	tell.Say("locks: %d, about %v", len(list),
		choose.Takes(list, once, f.measured, r.Cost).Round(time.Second))
	(&batch.Batch{Tell: tell, Stop: stop}).Sweep(list[slices.IndexFunc(list,
		func(c choose.Candidate) bool { return c.NotRun == "" })].Options())
	err = r.All(stop.Ctx, list)
	tell.Close()
	return f.report(std, r, err)
}

// chooseRows returns the locks that are named, or all of them.
func chooseRows(catalog engine.Catalog, args []string, quick bool) ([]choose.Row, error) {
	stories, err := scenarios.Load("stories/*")
	if err != nil {
		return nil, err
	}
	rows, err := choose.Catalog{
		Backends: nodes.OwnBackends(catalog), Stories: stories,
		Checkers: catalog.Checkers,
	}.Rows(args, quick)
	if errors.Is(err, suite.ErrNoLock) {
		return nil, cli.Usagef("choose: %v; `lockquake list locks` lists them all", err)
	}
	return rows, err
}

// candidates plans the runs of all locks. A lock whose requirements this machine lacks is listed with the reason. It
// is an error only if no lock can run.
func (f *chooseFlags) candidates(ctx context.Context, nodes *nodes.Source, rows []choose.Row,
	with func(*engine.Options),
) (out []choose.Candidate, err error) {
	var missing engine.MissingError
	some := false
	for _, row := range rows {
		c, err := choose.NewCandidate(row, func(s scenarios.Scenario) (engine.Options, error) {
			o, err := nodes.Options(ctx, s)
			if err == nil {
				with(&o)
			}
			return o, err
		})
		switch {
		case errors.As(err, &missing):
			c.NotRun = cli.InOneLine(err)
		case err != nil:
			return nil, fmt.Errorf("%s/%s: %w", row.Backend, row.Lock, err)
		default:
			some = true
		}
		out = append(out, c)
	}
	if !some {
		return nil, missing
	}
	return out, nil
}

// report prints the table, and returns the exit code as an error.
func (f *chooseFlags) report(std cli.Streams, r choose.Run, failed error) (err error) {
	switch f.format.Value {
	case "json":
		err = cli.WriteJSON(std.Out, r.Result)
	case "markdown":
		err = r.Result.Markdown(std.Out)
	default:
		err = cli.Folded(std.Out, r.Result.Text)
	}
	page := filepath.Join(r.Dir, choose.FileReport)
	if err := cli.DrawPage(page, r.Result.Page().HTML); err != nil {
		cli.Complain(std.Err, err) // the table is valid without the page
	} else if f.format.Value == "text" {
		fmt.Fprintf(std.Out, "\nreport  %s\n%s\n", cli.Shorten(page), cli.Shorten(r.Dir))
	}
	cli.Complain(std.Err, failed)
	code := max(cli.ExitCode(failed), cli.ExitCode(err))
	switch {
	case r.Result.Interrupted:
		code = cli.CodeInterrupted
	case len(r.Result.Left()) > 0:
		code = cli.Worse(code, cli.CodeInconclusive)
	}
	if code != cli.CodeMet {
		return cli.Exit{Code: code}
	}
	return nil
}
