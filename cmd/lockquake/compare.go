package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/compare"
	"github.com/lockquake/lockquake/results/sheet"
)

const compareDoc = `Compare judges runs of one scenario again and prints their figures side by side: medians with their
intervals. For two groups, separated by --, it adds how likely the difference is by chance: the Mann-Whitney U test for
measures, Fisher's exact test for the share of runs that have a count. It refuses to compare different machines or
settings, unless --allow names them.

For directories of sweeps (from 'lockquake capacity') it compares each point that both groups have. For each curve it
also compares the knee, the peak and the rate that keeps the objective. The sweeps of a group become one.

--fail-on p99=10%,throughput=5%,double_grants ends with exit code 1 if B is worse than A:
  - the median of a measure is worse by more than the bound, with p below 0.05
  - a count occurs only in B, or in significantly more runs of B
Too few runs for a result end with 4. For sweeps the worst point decides, with p below 0.05 divided by the number of
points.

Compare leaves a directory with compare.json and a page, compare.html. Its path is the last line printed.

Flags come before the directories. --format bench is the format of Go's benchmarks: benchstat -col group reads it.`

// comparison is a comparison of runs or of sweeps.
type comparison interface {
	Hold([]compare.Demand) []compare.Answer
	Text(io.Writer) error
	Bench(io.Writer) error
	Page() sheet.Page
}

// compareFlags is the command line of compare.
type compareFlags struct {
	flags  *pflag.FlagSet
	failOn string
	allow  []string
	out    string
	format *cli.Format
}

// The files of a comparison.
const (
	compareFile = "compare.json"
	comparePage = "compare.html"
)

func compareCommand(std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "compare RUN-DIR... [-- RUN-DIR...] | compare SWEEP-DIR... [-- SWEEP-DIR...]",
		Short: "Compare the figures of runs, or of sweeps",
		Long:  compareDoc,
		Example: `  lockquake compare --fail-on p99=10% before/etcd-healthy/2* -- runs/etcd-healthy/2*
  lockquake compare --fail-on p99=10%,throughput=5% before/capacity-* -- runs/capacity-*`,
		ValidArgsFunction: words.CompleteRunDir,
	}
	f := compareFlags{flags: c.Flags(), format: cli.AddFormat(c, "text", "json", "bench")}
	c.Flags().StringVar(&f.failOn, "fail-on", "",
		"end with exit code 1 if one of these became worse, such as p99=10%,throughput=5%,double_grants")
	c.Flags().StringSliceVar(&f.allow, "allow", nil, "compare even if these differ: machine, settings")
	c.Flags().StringVar(&f.out, "out", "runs", "folder of all runs; the comparison gets a directory there")
	words.CompleteDir(c, "out")
	c.RunE = func(_ *cobra.Command, args []string) error {
		dash := c.ArgsLenAtDash()
		if dash < 0 {
			dash = len(args)
		}
		if dash == 0 {
			return cli.Usagef("name the directories of runs, such as runs/etcd-healthy/latest; see `%s --help`",
				c.CommandPath())
		}
		return f.run(std, args[:dash], args[dash:])
	}
	return c
}

func (f *compareFlags) run(std cli.Streams, a, b []string) error {
	if err := f.format.Check(); err != nil {
		return err
	}
	if i := slices.IndexFunc(b, func(arg string) bool { return strings.HasPrefix(arg, "--") }); i >= 0 {
		return cli.Usagef("%s follows --, where only directories may be: put it before them", b[i])
	}
	if f.failOn != "" && len(b) == 0 {
		return cli.Usagef("--fail-on: there is only one group; put -- between the old and the new directories")
	}
	sweeps, err := areSweeps(slices.Concat(a, b))
	if err != nil {
		return err
	}
	known, list := checkers.All(), "`lockquake list measures` lists them"
	if sweeps {
		known = compare.SweepFigures(known)
		list = "there are " + strings.Join(results.Checkers{{Measures: compare.SweepMeasures()}}.Names(), ", ") +
			" and the counts of `lockquake list measures`"
	}
	var demands []compare.Demand
	if f.failOn != "" {
		if demands, err = compare.ParseDemands(f.failOn, known, list); err != nil {
			return cli.Usagef("--fail-on: %v", err)
		}
	}
	allow, err := compare.ParseAllow(f.allow)
	if err != nil {
		return cli.Usagef("--allow: %v", err)
	}
	var res comparison
	if sweeps {
		res, err = compareGroups(a, b, allow, sweepAt,
			func(a, b []compare.Sweep, allow compare.Allow) (*compare.SweepResult, error) {
				return compare.OfSweeps(a, b, known, allow)
			})
	} else {
		res, err = compareGroups(a, b, allow, judgedRun, func(a, b []compare.Run, allow compare.Allow) (*compare.Result,
			error,
		) {
			return compare.Of(a, b, known, allow)
		})
	}
	if err != nil {
		return err
	}
	return f.print(std, res, demands, f.command(a, b))
}

// command returns the command that repeats the comparison.
func (f *compareFlags) command(a, b []string) string {
	words := []string{cli.CommandOf(f.flags, "compare", nil, "out", "format")}
	for _, dir := range a {
		words = append(words, cli.Quoted(dir))
	}
	if len(b) > 0 {
		words = append(words, "--")
	}
	for _, dir := range b {
		words = append(words, cli.Quoted(dir))
	}
	return strings.Join(words, " ")
}

// areSweeps reports whether all directories are sweeps or all are runs. A mixture is an error.
func areSweeps(dirs []string) (bool, error) {
	sweep, run := "", ""
	for _, dir := range dirs {
		if words.IsSweep(dir) {
			sweep = cmp.Or(sweep, dir)
		} else if err := words.IsRunDir(dir); err != nil {
			return false, err
		} else {
			run = cmp.Or(run, dir)
		}
	}
	if sweep != "" && run != "" {
		return false, cli.Usagef("%s is the directory of a run, but %s that of a sweep: name only one kind", run, sweep)
	}
	return sweep != "", nil
}

func judgedRun(dir string) (compare.Run, error) { return compare.Read(dir, checkers.All()) }

func sweepAt(dir string) (compare.Sweep, error) {
	s, err := capacity.Read(filepath.Join(dir, capacity.File))
	return compare.Sweep{Dir: dir, Sweep: s}, err
}

// compareGroups reads two groups and compares them. A directory that is named twice in a group, for example by latest,
// counts once.
func compareGroups[T any, R comparison](a, b []string, allow compare.Allow, read func(dir string) (T, error),
	of func(a, b []T, allow compare.Allow) (R, error),
) (comparison, error) {
	var groups [2][]T
	var seen []string
	for i, args := range [][]string{a, b} {
		before := len(seen)
		for _, arg := range args {
			dir, err := words.RealDir(arg)
			if err != nil {
				return nil, err
			}
			at := slices.Index(seen, dir)
			if at >= 0 && at < before {
				return nil, cli.Usagef("%s is in both groups", cli.Shorten(dir))
			}
			if at >= 0 {
				continue
			}
			one, err := read(dir)
			if err != nil {
				return nil, err
			}
			seen, groups[i] = append(seen, dir), append(groups[i], one)
		}
	}
	res, err := of(groups[0], groups[1], allow)
	if err != nil {
		return nil, cli.Usagef("%v", err)
	}
	return res, nil
}

// print writes a comparison and the result of each demand. The demands decide the exit code.
func (f *compareFlags) print(std cli.Streams, res comparison, demands []compare.Demand, command string) error {
	code := cli.CodeMet
	for _, one := range res.Hold(demands) {
		code = cli.Worse(code, cli.VerdictCode(one.Verdict))
	}
	var err error
	switch f.format.Value {
	case "json":
		err = cli.WriteJSON(std.Out, res)
	case "bench":
		err = res.Bench(std.Out)
	default:
		err = cli.Folded(std.Out, res.Text)
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(f.out, "compare-"+time.Now().UTC().Format("20060102T150405.000"))
	page := res.Page()
	page.Command = command
	if err := errors.Join(os.MkdirAll(dir, 0o755), results.WriteJSON(filepath.Join(dir, compareFile), res),
		cli.DrawPage(filepath.Join(dir, comparePage), page.HTML)); err != nil {
		cli.Complain(std.Err, err) // the figures are valid without the page
	} else if f.format.Value == "text" {
		fmt.Fprintf(std.Out, "\nreport  %s\n%s\n", cli.Shorten(filepath.Join(dir, comparePage)), cli.Shorten(dir))
	}
	if code != cli.CodeMet {
		return cli.Exit{Code: code}
	}
	return nil
}
