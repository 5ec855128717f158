package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/internal/cluster"
)

func cleanCommand(std streams) *cobra.Command {
	var all, verbose bool
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove what dead runs left behind",
		Long: "Clean removes the containers, networks, namespaces, processes and directories of runs whose supervisor is dead, and\n" +
			"the images of lockquake's own binary that earlier builds left: the newest stays. Processes are killed, those that were\n" +
			"left stopped or frozen too. What belongs to a supervisor that is seen to run is never touched. It prints what it removed, one\n" +
			"thing a line; what it found and left is told on standard error.",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().BoolVar(&all, "all", false, "also what was kept on purpose (run --keep), what belongs to supervisors out of sight, such as on another machine, and the images of lockquake's own binary")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "note on standard error what is done")
	f := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		swept, err := cluster.Sweep(c.Context(), cluster.SweepOptions{All: all, Images: true, Log: logger(std.err, verbose)})
		if f.value == "json" {
			return errors.Join(writeJSON(std.out, swept), err)
		}
		for _, group := range []struct {
			what  string
			names []string
		}{
			{"container", swept.Containers},
			{"network", swept.Networks},
			{"process", swept.Processes},
			{"link", swept.Links},
			{"directory", swept.Directories},
			{"image", swept.Images},
			{"set right", swept.Clocks},
			{"thawed", swept.Frozen},
		} {
			for _, n := range group.names {
				fmt.Fprintf(std.out, "%s %s\n", group.what, n)
			}
		}
		for _, l := range swept.Left {
			fmt.Fprintln(std.err, "left: "+l)
		}
		if err != nil && strings.Contains(err.Error(), activeEndpoints) {
			fmt.Fprintln(std.err, "left: "+miscount)
		}
		return err
	}
	return c
}

const (
	// activeEndpoints is how Docker refuses to remove a network.
	activeEndpoints = "has active endpoints"
	miscount        = "a network without containers that the engine calls active is one whose endpoints it miscounts " +
		"(seen with Docker 20.10, moby/moby#42119): restart the engine, and run `lockquake clean`"
)

// onlyMiscounted tells whether nothing went wrong but that the engine keeps a network: all its containers were removed, or it would be told
// in a line of its own.
func onlyMiscounted(err error) bool {
	for line := range strings.Lines(err.Error()) {
		if !strings.Contains(line, "remove network ") || !strings.Contains(line, activeEndpoints) {
			return false
		}
	}
	return true
}
