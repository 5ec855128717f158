package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/cmd/lockquake/batch"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/sweep"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/scenarios"
)

// capacityFlags is the command line of capacity.
type capacityFlags struct {
	flags *pflag.FlagSet

	sweep.Request
	out, resume            string
	seed                   uint64
	repeat                 int
	measured, warm, budget time.Duration
	verbose                bool
	where                  nodes.Flags
	metrics                batch.MetricsFlag
	format                 *cli.Format
}

const capacityDoc = `Capacity measures how much load a lock takes, and where its throughput stops growing. It runs a scenario
with more and more users. Servers are kept from run to run, each run has a warm-up, and each point is measured several
times, in random order. With --slo it then searches for the highest open-loop rate that keeps the objective. Latency
counts from the time at which each acquire was due.

With --rate and --slo it answers, in one line per lock, whether the lock carries that rate. It makes three runs at each
rate, and one without a rate for the peak. Several backends may be named.

If the scenario writes to a resource, the report compares the lasting writes: applied writes, minus those missing from
the final value.

A list names several values of an axis; every combination of values is a point. In lists of whole numbers, 4..256
doubles: it is 4, 8, 16, 32, 64, 128, 256. --users, --locks, --hold, --ttl, --nodes, --rtt, --retry and --rate are axes.
--sweep KEY=A,B,C adds an axis of any other key of the scenario, and --set gives a key one value. Without --scenario,
users only acquire and release locks.

--rtt adds a delay between the clients and the servers, at the clients' end; the round trip is measured and reported.
--retry is the time that a polling lock waits before its next attempt: spin (none), fixed (10ms), jittered (5ms to
15ms), exponential (1ms, doubled up to 100ms).

Capacity leaves a directory with capacity.json, capacity.html and the directories of all runs. Its path is the last line
printed. Ctrl-C reports the results so far and ends with exit code 130; --resume continues. To fit into --budget, first
each point gets fewer runs, then each curve fewer numbers of users (at least 6), then whole curves are omitted. The
search gets at least half of the budget if it needs that.

Exit code 1: no rate kept the objective, a requested rate did not, or a lock broke its promise. 4: the runs are
inconclusive, because they were spoilt or the load generator was late.`

func capacityCommand(std cli.Streams) *cobra.Command {
	var f capacityFlags
	c := &cobra.Command{
		Use:   "capacity",
		Short: "Measure how much load a lock takes, and where its throughput stops growing",
		Long:  capacityDoc,
		Example: `  lockquake capacity --backend redis
  lockquake capacity --scenario counted-row --lock redis/none,redis/set-px-lua,etcd/mutex --users 1,10,100
  lockquake capacity --backend redis,etcd --users 64 --locks 64 --rate 2000 --slo p99=20ms
  lockquake capacity --backend etcd --lock mutex --users 1,2,4..256 --locks 1,64 --rtt 0,1ms --slo p99=20ms --budget 10m
  lockquake capacity --backend redis --retry spin,jittered,exponential --sweep backend.persistence=none,always`,
		Args: cli.NoArgs,
	}
	fl := c.Flags()
	f.flags = fl
	fl.StringVar(&f.Backend, "backend", "",
		"the backend, such as redis, or several: redis,etcd; 'lockquake list backends' has them")
	fl.StringVar(&f.Lock, "lock", "", "the lock, or several, also of several backends: redis/none,etcd/mutex; not given: the backend's default")
	fl.StringVar(&f.Scenario, "scenario", "",
		"the scenario to sweep, by name or file, instead of --backend and --lock")
	fl.StringVar(&f.Users, "users", "", "numbers of users, all clients together; 4..64 doubles: 4,8,16,32,64; not given: 1,2,4..64, or 64 with --rate and --slo")
	fl.StringVar(&f.Locks, "locks", "", "numbers of locks; each cycle takes one of them; own: one lock per user")
	fl.StringVar(&f.Hold, "hold", "", "durations of each hold, such as 0s,5ms")
	fl.StringVar(&f.TTL, "ttl", "", "TTLs of the lease, session or key, such as 2s,10s")
	fl.StringVar(&f.Nodes, "nodes", "", "numbers of members of the service, such as 1,3,5")
	fl.StringVar(&f.RTT, "rtt", "", "round trips to add between clients and servers, such as 0,1ms,5ms")
	fl.StringVar(&f.Retry, "retry", "", "retry policies of a lock that polls: spin, fixed, jittered, exponential")
	fl.StringVar(&f.Rate, "rate", "", "open-loop rates, in acquires per second over all users, such as 100,200; with --slo: does the lock carry them?")
	fl.StringArrayVar(&f.Sweep, "sweep", nil,
		"an axis of any other key of the scenario, such as workload.think=0s,5ms; may be repeated")
	fl.StringArrayVar(&f.Set, "set", nil,
		"replace a key of the scenario for all points, such as workload.clients=4; may be repeated")
	fl.StringVar(&f.SLO, "slo", "", "the objective of the open loop, such as p99=20ms: the highest rate that keeps it is searched, unless --rate is given")
	fl.IntVar(&f.repeat, "repeat", 3, "runs of each point")
	fl.DurationVar(&f.measured, "for", 3*time.Second, "measured duration of each run, after its warm-up")
	fl.DurationVar(&f.warm, "warmup", time.Second,
		"warm-up of each run, not measured; a second more if --rtt delays links")
	fl.DurationVar(&f.budget, "budget", 0, "time limit of the whole, such as 10m; 0: unlimited")
	f.where.Add(c)
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the order and of the runs; 0: random, and recorded")
	fl.StringVar(&f.out, "out", "runs", "folder of all runs")
	fl.StringVar(&f.resume, "resume", "",
		"continue the sweep in this directory, started by the same command on the same machine")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log progress to standard error")
	f.metrics.Add(fl)
	f.format = cli.AddFormat(c, "text", "json")
	words.CompleteBackendAndLock(c)
	words.CompleteFlag(c, "scenario", words.CompleteScenario)
	words.CompleteFlag(c, "retry", cobra.FixedCompletions(slices.Sorted(maps.Keys(sweep.Policies)),
		cobra.ShellCompDirectiveNoFileComp))
	words.CompleteDir(c, "out", "resume")
	c.RunE = func(c *cobra.Command, _ []string) error { return f.run(c.Context(), std) }
	return c
}

// run checks the whole command line first, so that an invalid one starts and writes nothing.
func (f *capacityFlags) run(ctx context.Context, std cli.Streams) error {
	tell := cli.NewProgress(std.Err, false)
	defer tell.Close()
	s := sweep.Sweep{Budget: f.budget, Say: tell.Say, Progress: tell.Update}
	if err := f.header(&s, tell); err != nil {
		return err
	}
	stop := cli.Interruptible(ctx, tell)
	defer stop.Done()
	o, points, err := f.points(stop.Ctx)
	if err = stop.Or(err); err != nil {
		return err
	}
	o.Log, o.Out = cli.Logger(tell, f.verbose), s.Dir
	delayed := slices.ContainsFunc(points, func(p sweep.Point) bool { return len(p.Scenario.Chaos) > 0 })
	if o.Attached == nil {
		o.Kept = &engine.KeptServers{Agent: delayed}
	}
	s.Runner = &sweep.Runner{Options: o, Warm: f.warm, For: f.measured}
	s.File.Scenario, s.File.ScenarioText, s.File.Provider, s.File.Attached = o.Scenario.Name, string(o.Scenario.Text),
		o.Provider.Name(), o.Attached != nil
	if err := s.Plan(points); err != nil {
		return err
	}
	served, err := f.metrics.Serve(tell, f.verbose)
	if err != nil {
		return err
	}
	if served != nil {
		defer served.Close()
		s.Follow = func(o *engine.Options) func(string) { return batch.Follow(served, o) }
	}
	if err := f.where.Attach.Agree(stop.Ctx, std, o); err != nil {
		return err
	}
	tell.Say("provider %s: %s", o.Provider.Name(), o.ProviderReason)
	tell.Say("points: %d, about %v", s.Points(), s.Takes().Round(time.Second))
	(&batch.Batch{Tell: tell, Stop: stop}).Sweep(o)
	err = s.Run(stop.Ctx)
	tell.Close()
	return f.report(std, &s, err, stop.Interrupted())
}

// header sets what is known of the sweep before it begins, and opens a new journal or the one to resume.
func (f *capacityFlags) header(s *sweep.Sweep, tell *cli.Progress) error {
	switch {
	case f.repeat < 1:
		return cli.Usagef("--repeat: %d is too few; at least 1", f.repeat)
	case f.measured < 100*time.Millisecond:
		return cli.Usagef("--for: %v is too short; at least 100ms", f.measured)
	case f.warm < time.Millisecond:
		return cli.Usagef("--warmup: %v is too short; at least 1ms", f.warm)
	case f.budget < 0:
		return cli.Usagef("--budget: %v is negative", f.budget)
	}
	if err := f.format.Check(); err != nil {
		return err
	}
	objective, err := sweep.ParseObjective(f.SLO)
	if err != nil {
		return err
	}
	var asked []float64
	if f.Asks() {
		if asked, err = sweep.Rates(f.Rate); err != nil {
			return cli.Usagef("--rate: %v", err)
		}
		if f.repeat < capacity.LeastRuns {
			return cli.Usagef("--repeat: %d is too few for an answer; at least %d", f.repeat, capacity.LeastRuns)
		}
	}
	open := batch.Opening{
		Verb: "capacity", What: "sweep", Out: f.out, Resume: f.resume, Seeded: true, Seed: f.seed, Older: olderSweep,
		Command: cli.CommandOf(f.flags, "capacity", nil, "resume", "seed", "out", "format", "verbose", "budget", "yes",
			"metrics-addr"),
	}
	s.File = capacity.Sweep{
		Schema: capacity.Schema, Objective: objective, Asked: asked, Repeat: f.repeat, Warm: int64(f.warm),
		Measured: int64(f.measured),
	}
	if s.Dir, s.Journal, s.File.Seed, err = open.Journal(tell); err != nil {
		return err
	}
	s.File.Origin = s.Journal.Header.Origin
	return nil
}

// olderSweep reads a sweep of a release that wrote no journal. Its runs are in capacity.json.
func olderSweep(dir string) (results.Origin, []campaign.Result, error) {
	old, err := capacity.Read(filepath.Join(dir, capacity.File))
	if err != nil {
		return results.Origin{}, nil, err
	}
	before, err := sweep.Results(old)
	return old.Origin, before, err
}

// points returns the requested points, and the options that all runs share.
func (f *capacityFlags) points(ctx context.Context) (engine.Options, []sweep.Point, error) {
	nodes, err := f.where.Read()
	if err != nil {
		return engine.Options{}, nil, err
	}
	if nodes.Attached != nil {
		f.Attached = nodes.Attached.Backend
	}
	return f.Points(func(s scenarios.Scenario) (engine.Options, error) {
		o, err := nodes.Options(ctx, s)
		if err == nil {
			o.Replay = nodes.Replay(results.FileScenario, nil, o.Provider.Name())
		}
		return o, err
	})
}

// drawCapacity writes the HTML page into a file.
func drawCapacity(file string, a capacity.Analysis) error {
	return cli.DrawPage(file, func(w io.Writer) error { return capacity.HTML(w, a) })
}

// report writes the reports of the measured points, and returns the exit code as an error.
func (f *capacityFlags) report(std cli.Streams, s *sweep.Sweep, failed error, interrupted bool) error {
	if len(s.File.Points) == 0 {
		if failed == nil && interrupted {
			return cli.Exit{Code: cli.CodeInterrupted}
		}
		return failed
	}
	a := capacity.Analyse(s.File)
	err := drawCapacity(filepath.Join(s.Dir, capacity.FileReport), a)
	if err != nil {
		cli.Complain(std.Err, err) // the figures are valid without the page
	}
	if f.format.Value == "json" {
		err = cli.WriteJSON(std.Out, s.File)
	} else {
		err = capacity.Text(std.Out, a, cli.Manner(std.Out, f.verbose)...)
		fmt.Fprintln(std.Out, cli.Shorten(s.Dir))
	}
	cli.Complain(std.Err, failed)
	code := max(cli.ExitCode(failed), cli.ExitCode(err))
	broken, confirmed, unproven, spoilt := 0, false, "", false
	for _, p := range s.File.Points {
		for _, one := range p.Samples {
			if one.Verdict == string(results.Fail) {
				broken++
				fmt.Fprintf(std.Err, "lockquake: a run failed at %s: %s\n", sweep.Name(p.Setting),
					cli.Shorten(filepath.Join(s.Dir, one.Run)))
			}
		}
	}
	for _, c := range a.Curves {
		confirmed, spoilt = confirmed || c.Kept.Confirmed, spoilt || !c.Usable()
		if c.Kept.Blocked || c.Kept.Rate > 0 {
			unproven = c.Kept.Why
		}
	}
	switch answered := capacity.Worst(a.Answers()); {
	case broken > 0, answered == capacity.No:
		code = cli.Worse(code, cli.CodeFailed)
	case spoilt, answered == capacity.NobodyCanSay:
		code = cli.Worse(code, cli.CodeInconclusive)
	case len(s.File.Asked) > 0:
	case s.File.Objective == nil, confirmed:
	case unproven != "":
		fmt.Fprintf(std.Err, "lockquake: no rate was confirmed for %v: %s\n", *s.File.Objective, unproven)
		code = cli.Worse(code, cli.CodeInconclusive)
	case !interrupted:
		fmt.Fprintf(std.Err, "lockquake: none of the rates keeps %v\n", *s.File.Objective)
		code = cli.Worse(code, cli.CodeFailed)
	}
	if interrupted {
		code = cli.CodeInterrupted
	}
	if code != cli.CodeMet {
		return cli.Exit{Code: code}
	}
	return nil
}
