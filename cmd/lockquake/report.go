package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/checkers"
)

func reportCommand(std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "report RUN-DIR | report SWEEP-DIR...",
		Short: "Judge a run again and rewrite its verdict and report; or put sweeps on one page",
		Long: "Report judges a run from its files and writes verdict.json, report.html and the pictures into its directory. It\n" +
			"prints the path of the report; the exit code says only whether it could be written.\n\n" +
			"For the directory of a sweep (from `lockquake capacity`) it rewrites capacity.html. Several sweeps of one machine\n" +
			"become one page with the same axes, at --out.",
		Example: `  lockquake report runs/etcd-holder-pause/latest --explain
  lockquake report runs/capacity-20261124T045637.160 runs/capacity-20261124T051201.402 --out etcd-and-redis.html`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && words.IsSweep(args[0]) {
				return nil
			}
			return words.OneRun(c, args)
		},
		ValidArgsFunction: words.CompleteRunDir,
	}
	tell := c.Flags().Bool("explain", false, "explain in about ten lines what happened, before the path")
	page := c.Flags().String("out", "", "with sweeps: the file of the page, instead of the sweep's own capacity.html")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if words.IsSweep(args[0]) {
			return reportSweeps(std, args, *page)
		}
		if *page != "" {
			return cli.Usagef("--out: the report of a run goes into its directory; omit --out")
		}
		dir, err := words.RunDir(args[0])
		if err != nil {
			return err
		}
		rep, err := campaign.Judge(dir, checkers.All())
		if err != nil {
			return err
		}
		if err := cli.DrawReport(dir, rep); err != nil {
			return err
		}
		if *tell {
			if err := cli.Explain(std.Out, dir, rep); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintln(std.Out, cli.Shorten(filepath.Join(dir, results.FileReport)))
		return err
	}
	return c
}

// reportSweeps draws sweeps on one page, and prints its path.
func reportSweeps(std cli.Streams, dirs []string, page string) error {
	if page == "" {
		if len(dirs) > 1 {
			return cli.Usagef("report: --out is missing: name the file for the page of %d sweeps", len(dirs))
		}
		page = filepath.Join(dirs[0], capacity.FileReport)
	}
	var sweeps []capacity.Sweep
	for _, dir := range dirs {
		s, err := capacity.Read(filepath.Join(dir, capacity.File))
		if err != nil {
			return cli.Usagef("report: %v", err)
		}
		sweeps = append(sweeps, s)
	}
	all, err := capacity.Merge(sweeps...)
	if err != nil {
		return cli.Usagef("report: %v", err)
	}
	if err := drawCapacity(page, capacity.Analyse(all)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(std.Out, cli.Shorten(page))
	return err
}
