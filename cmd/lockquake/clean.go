package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster"
)

func cleanCommand(std streams) *cobra.Command {
	var all, yes, verbose bool
	var provider string
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove what dead runs left behind",
		Long: "Clean removes the containers, networks, namespaces, processes and directories of runs whose supervisor is dead, and\n" +
			"the images of lockquake's own binary that earlier builds left: the newest stays. Processes are killed, those that were\n" +
			"left stopped or frozen too. What belongs to a supervisor that is seen to run is never touched. It prints what it removed, one\n" +
			"thing a line; what it found and left is told on standard error. With --all it first lists what it would remove, and asks: on a\n" +
			"machine that others use too, it takes what they kept.\n\n" +
			"With --provider swarm it looks at all hosts of the swarm that can be had. It names the others, and the exit code is then 3.",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().BoolVar(&all, "all", false, "also what was kept on purpose (run --keep), what belongs to supervisors out of sight, such as on another machine, and the images of lockquake's own binary")
	c.Flags().BoolVar(&yes, "yes", false, "with --all: do not ask")
	c.Flags().StringVar(&provider, "provider", "auto", "swarm: also on all other hosts of the Docker Swarm; with any other, on this machine and its engine")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "note on standard error what is done")
	f := formatFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		if err := checkProvider(provider); err != nil {
			return err
		}
		o := cluster.SweepOptions{All: all, Images: true, Swarm: provider == "swarm", Log: logger(std.err, verbose), Mechanisms: mechanisms.All()}
		if all && !yes {
			o.Look = true
			found, err := cluster.Sweep(c.Context(), o)
			if err == nil {
				err = agree(std, found)
			}
			if err != nil {
				return err
			}
			o.Look = false
		}
		swept, err := cluster.Sweep(c.Context(), o)
		if err == nil && len(swept.Unseen) > 0 {
			err = exit{code: codeMissing}
		}
		if f.value == "json" {
			return errors.Join(writeJSON(std.out, swept), err)
		}
		tellSwept(std.out, swept)
		for _, l := range swept.Left {
			fmt.Fprintln(std.err, "left: "+l)
		}
		for _, h := range swept.Unseen {
			fmt.Fprintln(std.err, "not looked at: host "+h+"; clean again when it is ready and active")
		}
		if err != nil && strings.Contains(err.Error(), cluster.ActiveEndpoints) {
			fmt.Fprintln(std.err, "left: "+cluster.Miscount)
		}
		return err
	}
	return c
}

// tellSwept prints one thing a line.
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

// agree asks whether what was found is to be removed; nil is a yes.
func agree(std streams, found cluster.Swept) error {
	if found.Empty() {
		return nil
	}
	tellSwept(std.err, found)
	if f, ok := std.in.(*os.File); !ok || !cwriter.IsTerminal(int(f.Fd())) {
		return usagef("clean --all: it would remove the above, %v, and there is no terminal to ask at; --yes removes it", found)
	}
	fmt.Fprintf(std.err, "remove the above, %v? [y/N] ", found)
	answer, _ := bufio.NewReader(std.in).ReadString('\n') // none is a no
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return usagef("clean --all: nothing was removed")
	}
	return nil
}
