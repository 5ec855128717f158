package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/report"
)

func checkCommand(std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "check RUN-DIR",
		Short: "Judge a run again from its directory",
		Long: "Check judges a run from its files, prints the verdict and ends with its exit code. It writes nothing. A truncated or\n" +
			"damaged history is not judged: check names the place and ends with exit code 4.",
		Args:              words.OneRun,
		ValidArgsFunction: words.CompleteRunDir,
	}
	f := cli.AddFormat(c, "text", "json")
	verbose := c.Flags().BoolP("verbose", "v", false, "print all counts, latencies, receipts and versions")
	tell := c.Flags().Bool("explain", false, "explain in about ten lines what happened, after the verdict")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := f.Check(); err != nil {
			return err
		}
		if *tell && f.Value == "json" {
			return cli.Usagef("--explain: it needs --format text; --format json prints only the verdict")
		}
		dir, err := words.RunDir(args[0])
		if err != nil {
			return err
		}
		rep, err := results.Judge(dir, checkers.All())
		if err != nil {
			return err
		}
		if f.Value == "json" {
			err = cli.WriteJSON(std.Out, rep)
		} else {
			err = report.Text(std.Out, rep, cli.Manner(std.Out, *verbose)...)
		}
		if err != nil {
			return err
		}
		if *tell {
			if err := cli.Explain(std.Out, dir, rep); err != nil {
				return err
			}
		}
		if f.Value == "text" {
			fmt.Fprintln(std.Out, cli.Shorten(dir))
		}
		if code := cli.VerdictCode(rep.Verdict); code != cli.CodeMet {
			return cli.Exit{Code: code}
		}
		return nil
	}
	return c
}
