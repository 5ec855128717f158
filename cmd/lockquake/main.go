// Lockquake benchmarks distributed locks and injects faults under them. Each verb has a file of its own; this one
// starts the program and determines its exit code.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/cmd/lockquake/asnode"
	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/cmd/lockquake/doctor"
	"github.com/lockquake/lockquake/cmd/lockquake/run"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cli"
)

func main() {
	cli.Invocation = cli.StartedAs(os.Args[0])
	os.Exit(execute(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// execute runs one command line and returns the exit code.
func execute(args []string, std cli.Streams) int {
	people := cli.Streams{
		In: std.In, Out: cli.NewPrinted(std.Out), Err: cli.NewPrinted(std.Err),
		Goroutine: std.Goroutine,
	}
	root := newRoot(std, people)
	root.SetArgs(args)
	err := strayVerb(root, args)
	if err == nil {
		err = root.ExecuteContext(context.Background())
	}
	cli.Complain(people.Err, err)
	return cli.ExitCode(err)
}

const rootDoc = `lockquake starts real lock services, lets clients compete for locks, and pauses, kills, restarts and
disconnects servers and clients. It reports how fast the lock was and how often it was not a lock.

Exit codes: 0 expectations met, 1 an expectation failed, 2 bad usage or scenario, 3 something needed is missing,
4 inconclusive, 130 interrupted after healing.

The verb node has what lockquake starts on its nodes; it has help of its own.`

// newRoot returns the root command with all verbs. Verbs for people print through people; verbs for nodes use std,
// because they speak a protocol over it.
func newRoot(std, people cli.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:           "lockquake",
		Short:         "Benchmarks distributed locks and breaks the world under them",
		Long:          rootDoc,
		Version:       cli.Version,
		SilenceErrors: true,
		// Without it, no verb is similar enough to be suggested.
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		Args:                       cli.VerbOnly,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
		PersistentPreRunE: func(c *cobra.Command,
			_ []string,
		) error {
			return enoughAddresses(c.Name(), proc.AddressSpace())
		},
	}
	root.SetIn(people.In)
	root.SetOut(people.Out)
	root.SetErr(people.Err)
	root.SetFlagErrorFunc(cli.WrongFlag)
	root.SetHelpFunc(cli.FoldedHelp(people.Out, root.HelpFunc()))
	root.AddCommand(
		run.Command(people), suiteCommand(people), capacityCommand(people), chooseCommand(people), huntCommand(people),
		listCommand(people), showCommand(people), newCommand(people),
		checkCommand(people), reportCommand(people), historyCommand(people), compareCommand(people),
		doctor.Command(people), cleanCommand(people), versionCommand(people), compose.Command(people),
		upCommand(people), imagesCommand(people), clientCommand(people), asnode.Command(people, std),
	)
	return root
}

// enoughAddresses refuses to start if the runtime may run out of address space for its heap. That would end the
// process at any moment, with a stack trace and code 2.
func enoughAddresses(verb string, may uint64) error {
	const need = 4 << 30 // a small run takes 1.3 GiB, and the runtime reserves more in large steps
	if may >= need || verb == "version" || verb == "help" {
		return nil
	}
	return chaos.Unavailable{
		What: verb,
		Reason: fmt.Sprintf("ulimit -v allows %d MiB of address space here, but %d are needed: ulimit -v unlimited",
			may>>20, need>>20),
	}
}

// strayVerb refuses an unknown verb even with --help, which cobra handles before everything else.
func strayVerb(root *cobra.Command, args []string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	c, rest, err := root.Find(args)
	// The "__" verbs are requests of a shell for completions.
	if err != nil || !c.HasSubCommands() || len(args) > 0 && strings.HasPrefix(args[0], "__") {
		return nil
	}
	return cli.VerbOnly(c, slices.DeleteFunc(slices.Clone(rest),
		func(word string) bool { return strings.HasPrefix(word, "-") }))
}
