package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/results"
)

func reportCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "report RUN-DIR",
		Short: "Judge a run again and write its verdict and report anew",
		Long: "Report judges a run from what is on disk and writes verdict.json, report.html and the pictures into its directory. It\n" +
			"prints the path of the report; the exit code says only whether it could be written.",
		Args:              oneRun,
		ValidArgsFunction: completeRunDir,
	}
	tell := c.Flags().Bool("explain", false, "tell in about ten lines of plain words what happened, before the path")
	c.RunE = func(_ *cobra.Command, args []string) error {
		dir, err := runDir(args[0])
		if err != nil {
			return err
		}
		rep, err := judgeAndWrite(dir)
		if err != nil {
			return err
		}
		if err := draw(dir, rep); err != nil {
			return err
		}
		if *tell {
			if err := explain(std.out, dir, rep); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintln(std.out, shorten(filepath.Join(dir, results.FileReport)))
		return err
	}
	return c
}
