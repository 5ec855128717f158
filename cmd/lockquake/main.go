// Lockquake benchmarks distributed locks and breaks the world under them. Each verb has a file of its own; this one
// knows how the program begins and with what exit code it ends.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev"

func main() { os.Exit(execute(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})) }

// streams are what a verb talks to: data goes to out, everything for people to err.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	// goroutine says that the verb shares its process with others.
	goroutine bool
}

// execute carries out one command line and returns the exit code.
func execute(args []string, std streams) int {
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	complain(std.err, err)
	return exitCode(err)
}

const rootDoc = `lockquake starts real lock services, makes clients fight over locks in them, pauses, kills and restarts what is
under them, and reports how fast the lock was and how often it was not a lock.

Exit codes: 0 expectations met, 1 an expectation failed, 2 bad usage or scenario, 3 something needed is missing,
4 inconclusive, 130 interrupted after healing.

The verbs client, register, replica, ledger, agent and node are what lockquake starts on its nodes; they have help of their own.`

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "lockquake",
		Short:         "Benchmarks distributed locks and breaks the world under them",
		Long:          rootDoc,
		Version:       version,
		SilenceErrors: true,
		// Without it, no verb is near enough to be suggested.
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		Args:                       verbOnly,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%v; `%s --help` lists the flags", err, c.CommandPath())
	})
	root.AddCommand(
		runCommand(std), listCommand(std), checkCommand(std), reportCommand(std), historyCommand(std),
		doctorCommand(std), cleanCommand(std), versionCommand(std),
		clientCommand(std), registerCommand(std), replicaCommand(std), ledgerCommand(std), agentCommand(std), nodeCommand(std), composeCommand(std),
	)
	return root
}

// verbOnly refuses a first word that is no verb.
func verbOnly(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("there is no verb %q; did you mean %q? `lockquake --help` lists them", args[0], near[0])
	}
	return usagef("there is no verb %q; `lockquake --help` lists them", args[0])
}

// logger writes what a verb notes on the side; without verbose only what somebody should know.
func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
