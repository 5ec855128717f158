package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cli"
)

// TestEveryFlagSaysWhatItTakes: an invalid value is answered with a valid one, whatever the type of the flag.
func TestEveryFlagSaysWhatItTakes(t *testing.T) {
	t.Parallel()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); cli.FlagValues[kind] == "" && !slices.Contains([]string{"string", "stringArray"}, kind) {
				t.Errorf("%s --%s is a %s, which flagValues does not have", c.CommandPath(), f.Name, kind)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(cli.Streams{}, cli.Streams{}))
}

// TestTooLowLimitIsReported: a too low limit of the process is reported in one line with the remedy, and the
// exit code for missing requirements.
func TestTooLowLimitIsReported(t *testing.T) {
	t.Parallel()
	err := enoughAddresses("run", 2_000_000<<10)
	if cli.ExitCode(err) != cli.CodeMissing || err.Error() != "run is unavailable: ulimit -v allows 1953 MiB of address space here, but 4096 are needed: ulimit -v unlimited" {
		t.Errorf("%d, %v", cli.ExitCode(err), err)
	}
	if err := errors.Join(enoughAddresses("version", 1<<20), enoughAddresses("run", 4<<30)); err != nil {
		t.Error(err)
	}
	out := fmt.Errorf("start client-4: %w", os.NewSyscallError("pipe2", syscall.EMFILE))
	var said strings.Builder
	cli.Complain(&said, out)
	want := fmt.Sprintf("lockquake: start client-4: pipe2: too many open files: ulimit -n is %d, raise it\n", proc.OpenFiles())
	if cli.ExitCode(out) != cli.CodeMissing || said.String() != want {
		t.Errorf("%d, %q, want %q", cli.ExitCode(out), said.String(), want)
	}
}
