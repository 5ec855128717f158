package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/compare"
)

const compareDoc = `Compare judges runs of one scenario anew and sets their figures side by side: medians with their intervals, and of two groups, which -- tells
apart, how likely the difference is by chance. Measures are tested by Mann and Whitney's U test, counts by Fisher's exact test of how many
runs have them. It refuses to compare different machines or settings, unless --allow names them.

--fail-on p99=10%,throughput=5%,double_grants ends with 1 where B is worse than A: the median of a measure by more than that, with p below
0.05; a count that A never has and B has, or that significantly more runs of B have. Too few runs to tell end with 4.

Flags come before the directories. --format bench is that of Go's benchmarks: benchstat -col group reads it.`

func compareCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:               "compare RUN-DIR... [-- RUN-DIR...]",
		Short:             "Set the figures of runs side by side",
		Long:              compareDoc,
		Example:           "  lockquake compare --fail-on p99=10% before/etcd-healthy/2* -- runs/etcd-healthy/2*",
		ValidArgsFunction: completeRunDir,
	}
	f := formatFlag(c, "text", "json", "bench")
	failOn := c.Flags().String("fail-on", "", "end with exit code 1 where one of these became worse, such as p99=10%,throughput=5%,double_grants")
	allow := c.Flags().StringSlice("allow", nil, "compare although these differ: machine, settings")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		dash := c.ArgsLenAtDash()
		if dash < 0 {
			dash = len(args)
		}
		if dash == 0 {
			return usagef("name the directories of runs, such as runs/etcd-healthy/latest; `%s --help` tells how", c.CommandPath())
		}
		var demands []compare.Demand
		if *failOn != "" {
			var err error
			if demands, err = compare.ParseDemands(*failOn, checkers.All()); err != nil {
				return usagef("--fail-on: %v", err)
			}
			if dash == len(args) {
				return usagef("--fail-on: there is one group of runs; put -- between those of before and those of now")
			}
		}
		allowed := compare.Allow{Machine: slices.Contains(*allow, "machine"), Settings: slices.Contains(*allow, "settings")}
		for _, what := range *allow {
			if what != "machine" && what != "settings" {
				return usagef("--allow: there is no %q; there are machine and settings", what)
			}
		}
		if i := slices.IndexFunc(args[dash:], func(arg string) bool { return strings.HasPrefix(arg, "--") }); i >= 0 {
			return usagef("%s stands behind --, where only directories are: put it before them", args[dash+i])
		}
		a, err := readRuns(args[:dash])
		if err != nil {
			return err
		}
		b, err := readRuns(args[dash:])
		if err != nil {
			return err
		}
		for _, r := range b {
			if slices.ContainsFunc(a, func(o compare.Run) bool { return o.Dir == r.Dir }) {
				return usagef("%s is in both groups", shorten(r.Dir))
			}
		}
		res, err := compare.Of(a, b, checkers.All(), allowed)
		if err != nil {
			return usagef("%v", err)
		}
		return printComparison(std, f.value, res, a, b, demands)
	}
	return c
}

// readRuns judges runs. One that is named twice, such as by latest, counts once.
func readRuns(args []string) ([]compare.Run, error) {
	var out []compare.Run
	for _, arg := range args {
		dir, err := runDir(arg)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(r compare.Run) bool { return r.Dir == dir }) {
			continue
		}
		r, err := compare.Read(dir, checkers.All())
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func printComparison(std streams, format string, res compare.Result, a, b []compare.Run, demands []compare.Demand) error {
	answers, code := []compare.Answer{}, codeMet
	for _, d := range demands {
		one := res.Answer(d)
		answers, code = append(answers, one), worse(code, verdictCode(one.Verdict))
	}
	var err error
	switch format {
	case "json":
		err = writeJSON(std.out, struct {
			compare.Result
			Answers []compare.Answer `json:"answers"`
		}{res, answers})
	case "bench":
		err = compare.Bench(std.out, a, b)
	default:
		err = compare.Text(std.out, res)
	}
	if err != nil {
		return err
	}
	if format == "text" {
		for _, one := range answers {
			fmt.Fprintf(std.out, "\n%s  %s: %s", strings.ToUpper(string(one.Verdict)), one.Demand, one.Reason)
		}
		if len(answers) > 0 {
			fmt.Fprintln(std.out)
		}
	}
	if code != codeMet {
		return exit{code: code}
	}
	return nil
}
