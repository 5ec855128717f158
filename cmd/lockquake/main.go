// Lockquake benchmarks distributed locks and breaks the world under them. Each verb has a file of its own; this one
// knows how the program begins and with what exit code it ends.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

func main() {
	invocation = startedAs(os.Args[0])
	os.Exit(execute(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}

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
	people := streams{in: std.in, out: newPrinted(std.out), err: newPrinted(std.err), goroutine: std.goroutine}
	root := newRoot(std, people)
	root.SetArgs(args)
	err := strayVerb(root, args)
	if err == nil {
		err = root.ExecuteContext(context.Background())
	}
	complain(people.err, err)
	return exitCode(err)
}

const rootDoc = `lockquake starts real lock services, makes clients fight over locks in them, pauses, kills and restarts what is
under them, and reports how fast the lock was and how often it was not a lock.

Exit codes: 0 expectations met, 1 an expectation failed, 2 bad usage or scenario, 3 something needed is missing,
4 inconclusive, 130 interrupted after healing.

The verb node is what lockquake starts on its nodes; it has help of its own.`

// newRoot makes the verbs. Those for people print through people; those that nodes run have std as it is, for they speak a protocol over it.
func newRoot(std, people streams) *cobra.Command {
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
		PersistentPreRunE:          func(c *cobra.Command, _ []string) error { return enoughAddresses(c.Name(), proc.AddressSpace()) },
	}
	root.SetIn(people.in)
	root.SetOut(people.out)
	root.SetErr(people.err)
	root.SetFlagErrorFunc(wrongFlag)
	root.SetHelpFunc(foldedHelp(people.out, root.HelpFunc()))
	root.AddCommand(
		runCommand(people), suiteCommand(people), capacityCommand(people), chooseCommand(people), listCommand(people), showCommand(people), newCommand(people), checkCommand(people), reportCommand(people), historyCommand(people), compareCommand(people),
		doctorCommand(people), cleanCommand(people), versionCommand(people), composeCommand(people), upCommand(people), imagesCommand(people), clientCommand(people), nodeCommand(people, std),
	)
	return root
}

// enoughAddresses refuses to work where the runtime may find no addresses for its heap: it would end the process in the middle of anything, with its
// stacks and code 2.
func enoughAddresses(verb string, may uint64) error {
	const need = 4 << 30 // a small run takes 1.3 GiB, and the runtime reserves more in large steps
	if may >= need || verb == "version" || verb == "help" {
		return nil
	}
	return chaos.Unavailable{
		What:   verb,
		Reason: fmt.Sprintf("ulimit -v allows %d MiB of addresses here, and %d are needed: ulimit -v unlimited", may>>20, need>>20),
	}
}

// strayVerb refuses a word that is no verb also where help is asked for, which comes before all else.
func strayVerb(root *cobra.Command, args []string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	c, rest, err := root.Find(args)
	if err != nil || !c.HasSubCommands() || len(args) > 0 && strings.HasPrefix(args[0], "__") { // a shell asks for completions
		return nil
	}
	return verbOnly(c, slices.DeleteFunc(slices.Clone(rest), func(word string) bool { return strings.HasPrefix(word, "-") }))
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

// invocation is what to write in a shell to start this program. Main finds it out.
var invocation = "lockquake"

// startedAs returns "lockquake" where a shell finds that, else how this program was started.
func startedAs(word string) string {
	if _, err := exec.LookPath("lockquake"); err == nil {
		return "lockquake"
	}
	if filepath.Base(word) == word { // a shell found it, or somebody made the word up
		if _, err := exec.LookPath(word); err != nil {
			if self, err := os.Executable(); err == nil {
				word = self
			}
		}
	}
	return quoted(word)
}
