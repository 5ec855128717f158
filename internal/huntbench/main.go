// Huntbench sends `lockquake hunt` after locks whose faults are known, with the guided search and with random scripts,
// and compares the times to the first violation. Start it at the top of the tree. It appends each hunt to
// docs/internals/hunt-bench.jsonl, and makes only the hunts that this file lacks.
//
// Both hunts of a pair run side by side: whatever else the machine does, it does it to both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/longrun"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "huntbench:", err)
		os.Exit(1)
	}
}

// The defaults of the flags. The search of a target within the process is capped.
const (
	usualBudget  = 10 * time.Minute
	memoryBudget = time.Minute
	leastShrink  = 2 * time.Minute
	usualSeeds   = 3
	mostHours    = 24
	recordFile   = "docs/internals/hunt-bench.jsonl"
)

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("huntbench", flag.ContinueOnError)
	only := flags.String("only", "", "the target of this name, or all whose names contain this; several with commas between")
	budget := flags.Duration("budget", usualBudget, "of each search; targets within the process have at most a minute")
	seeds := flags.Int("seeds", usualSeeds, "pairs of hunts for each target")
	parallel := flags.Int("parallel", 1, "pairs at once; a hunt mostly waits")
	most := flags.Duration("within", mostHours*time.Hour, "begin no hunt after this time")
	shrink := flags.Bool("shrink", true, "make the first script that is found for each target smaller, and try it")
	list := flags.Bool("list", false, "print the targets and how far they are, and hunt nothing")
	page := flags.Bool("page", false, "print the tables of the hunts made so far, and hunt nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rec, err := openRecord(recordFile)
	if err != nil {
		return err
	}
	defer rec.file.Close()
	chosen := choose(targets(), *only)
	if len(chosen) == 0 {
		return fmt.Errorf("-only %s: no target has that in its name", *only)
	}
	if !*list && !*page {
		b := bench{
			budget: *budget, seeds: *seeds, shrink: *shrink, parallel: *parallel, until: time.Now().Add(*most),
			rec: rec,
		}
		if err := b.all(ctx, chosen); err != nil {
			return err
		}
	}
	if *list {
		for _, t := range chosen {
			fmt.Printf("%-40s %s, %d hunts done\n", t.Name, t.Goal, len(rec.of(t)))
		}
		return nil
	}
	return report(os.Stdout, chosen, rec)
}

// choose returns the targets that a list names, in their order. A text that is no target's name stands for all whose
// names contain it.
func choose(all []Target, only string) (out []Target) {
	named := func(name string) bool {
		return slices.ContainsFunc(all, func(t Target) bool { return t.Name == name })
	}
	parts := strings.Split(only, ",")
	for _, t := range all {
		if slices.ContainsFunc(parts, func(part string) bool {
			return t.Name == part || !named(part) && strings.Contains(t.Name, part)
		}) {
			out = append(out, t)
		}
	}
	return out
}

// bench runs hunts.
type bench struct {
	budget   time.Duration
	seeds    int
	shrink   bool
	until    time.Time
	parallel int
	rec      *record
	commit   string
}

// all runs the hunts that the record lacks: the first seed of every target before the second of any.
func (b *bench) all(ctx context.Context, chosen []Target) error {
	var err error
	if b.commit, err = longrun.Build(ctx, os.Stderr); err != nil {
		return err
	}
	var group errgroup.Group // an error of one target ends no other
	group.SetLimit(max(b.parallel, 1))
	for seed := 1; seed <= b.seeds; seed++ {
		for _, t := range chosen {
			if t.Nothing && seed > 1 {
				continue
			}
			group.Go(func() error { return b.pair(ctx, t, seed) })
		}
	}
	return group.Wait()
}

// pair runs the hunts of a pair that the record lacks, side by side.
func (b *bench) pair(ctx context.Context, t Target, seed int) error {
	var group errgroup.Group
	for _, random := range []bool{false, true} {
		if random && t.Nothing || b.rec.has(t, seed, random) {
			continue
		}
		if time.Now().After(b.until) {
			return errors.Join(group.Wait(), errors.New("the time is over; start again to resume"))
		}
		group.Go(func() error {
			h, err := b.hunt(ctx, t, seed, random)
			if err == nil {
				err = b.rec.add(h)
			}
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", t.Name, seed, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// noShrinking is too short for any run: the script is kept as it was found.
const noShrinking = time.Millisecond

// hunt runs one hunt.
func (b *bench) hunt(ctx context.Context, t Target, seed int, random bool) (Hunt, error) {
	h := Hunt{
		Target: t.Name, Seed: seed, Random: random, Commit: b.commit, Date: time.Now().UTC().Truncate(time.Second),
		Load: engine.LoadAverage(),
	}
	budget, shrink := b.budget, noShrinking
	if t.Memory {
		budget = min(budget, memoryBudget)
	}
	if b.shrink && seed == 1 && !random {
		shrink = max(budget, leastShrink)
	}
	h.Budget = budget.Milliseconds()
	out := filepath.Join(".hunt/runs", fmt.Sprintf("%s-%d", t.ID(), seed))
	if random {
		out += "-random"
	}
	args := append([]string{"hunt"}, t.Args...)
	args = append(args, "--goal", t.Goal, "--budget", budget.String(), "--shrink-budget", shrink.String(), "--seed",
		fmt.Sprint(seed), "--out", out, "--format", "json", "--keep", "200MB")
	if random {
		args = append(args, "--random")
	}
	if !t.Memory {
		args = append(args, "--provider", "local")
	}
	fmt.Fprintf(os.Stderr, "huntbench: %s %s\n", longrun.Program, strings.Join(args, " "))
	result, err := call(ctx, args)
	if err != nil {
		return h, err
	}
	if err := h.take(result, t.Goal, out); err != nil {
		return h, err
	}
	if h.File != "" && len(t.Good) > 0 {
		h.Good, err = b.good(ctx, t, h.File)
	}
	return h, err
}

// call runs the program and returns its output. A hunt that was interrupted or refused is an error, whatever it found.
func call(ctx context.Context, args []string) ([]byte, error) {
	cmd := longrun.Command(ctx, longrun.Program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	const failed, inconclusive = 1, 4
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() == failed || exit.ExitCode() == inconclusive) && ctx.Err() == nil {
		err = nil
	}
	return out, err
}

// goodRuns is the number of runs of a script on the version without the bug.
const goodRuns = 10

// good returns in how many of ten runs the script that breaks one version reaches the goal on the version without the
// bug.
func (b *bench) good(ctx context.Context, t Target, file string) (*int, error) {
	args := append([]string{
		"run", file, "--repeat", fmt.Sprint(goodRuns), "--provider", "local", "--format", "json",
		"--out", ".hunt/runs",
	}, t.Good...)
	out, err := call(ctx, args)
	if err != nil {
		return nil, err
	}
	return reached(out, t.Goal)
}
