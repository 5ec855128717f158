package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
)

func cleanCommand(std cli.Streams) *cobra.Command {
	var all, yes, verbose bool
	var provider string
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove the leftovers of dead runs",
		Long: "Clean removes the containers, networks, namespaces, processes and directories of runs whose supervisor is dead, and\n" +
			"the images of lockquake's own binary from earlier builds, except the newest. Processes are killed, also stopped and\n" +
			"frozen ones. Whatever belongs to a running supervisor stays. Clean prints what it removed, one line each; what it found\n" +
			"but left goes to standard error. With --all it first lists what it would remove, and asks: on a shared machine that\n" +
			"includes what other users kept.\n\n" +
			"With --provider swarm it cleans all available hosts of the swarm. It names the others and ends with exit code 3.",
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().BoolVar(&all, "all", false,
		"also remove what run --keep kept, what belongs to supervisors that are not visible (such as on another machine), and the images of lockquake's own binary")
	c.Flags().BoolVar(&yes, "yes", false, "with --all: do not ask")
	c.Flags().StringVar(&provider, "provider", "auto",
		"swarm: all hosts of the Docker Swarm; any other: this machine and its engine")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "log progress to standard error")
	f := cli.AddFormat(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.Check(); err != nil {
			return err
		}
		if err := nodes.CheckProvider(provider); err != nil {
			return err
		}
		o := cluster.SweepOptions{
			All: all, Images: true, Swarm: provider == "swarm", Log: cli.Logger(std.Err, verbose),
			Mechanisms: mechanisms.All(),
		}
		if all && !yes {
			o.Look = true
			found, err := cluster.Sweep(c.Context(), o)
			if err == nil {
				err = agree(c.Context(), std, found)
			}
			if err != nil {
				return err
			}
			o.Look = false
		}
		swept, err := cluster.Sweep(c.Context(), o)
		if err == nil && len(swept.Unseen) > 0 {
			err = cli.Exit{Code: cli.CodeMissing}
		}
		if f.Value == "json" {
			return errors.Join(cli.WriteJSON(std.Out, swept), err)
		}
		tellSwept(std.Out, swept)
		for _, l := range swept.Left {
			fmt.Fprintln(std.Err, "left: "+l)
		}
		for _, h := range swept.Unseen {
			fmt.Fprintln(std.Err, "not checked: host "+h+"; clean again when it is ready and active")
		}
		if err != nil && strings.Contains(err.Error(), cluster.ActiveEndpoints) {
			fmt.Fprintln(std.Err, "left: "+cluster.Miscount)
		}
		return err
	}
	return c
}

// tellSwept prints one removed thing per line.
func tellSwept(w io.Writer, swept cluster.Swept) {
	for _, group := range []struct {
		what  string
		names []string
	}{
		{"container", swept.Containers},
		{"service", swept.Services},
		{"network", swept.Networks},
		{"process", swept.Processes},
		{"directory", swept.Directories},
		{"image", swept.Images},
		{"set right", swept.Clocks},
		{"thawed", swept.Frozen},
	} {
		for _, n := range group.names {
			fmt.Fprintf(w, "%s %s\n", group.what, n)
		}
	}
}

// agree asks whether to remove what was found; nil means yes.
func agree(ctx context.Context, std cli.Streams, found cluster.Swept) error {
	if found.Empty() {
		return nil
	}
	tellSwept(std.Err, found)
	if !cli.CanAsk(std) {
		return cli.Usagef("clean --all: it would remove the above, %v, but there is no terminal for the question; --yes removes it", found)
	}
	if !cli.AskYes(ctx, std, fmt.Sprintf("remove the above, %v?", found)) {
		return cli.Usagef("clean --all: nothing was removed")
	}
	return nil
}
