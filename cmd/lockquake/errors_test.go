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

func TestReplayCanBePasted(t *testing.T) {
	t.Parallel()
	set := []string{"expect.double_grants=>0", "run.for=3s"}
	n := nodeSource{flags: &nodeFlags{images: []string{"redis=redis:7.4"}}}
	want := "lockquake run etcd-healthy --provider docker --set 'expect.double_grants=>0' --set run.for=3s --image redis=redis:7.4"
	if got := n.replay("etcd-healthy", set, "docker"); got != want {
		t.Errorf("replay is\n%s\nshould be\n%s", got, want)
	}
	n.other = "/opt/a client"
	if got := n.replay("it's.yaml", set, "inproc"); got != `lockquake run 'it'\''s.yaml' --set 'expect.double_grants=>0' --set run.for=3s --image redis=redis:7.4` {
		t.Errorf("replay is %s", got)
	}
}

// TestReplayNamesTheProgramThatStoodIn repeats a run with what its nodes ran, which the name of the lock does not tell.
func TestReplayNamesTheProgramThatStoodIn(t *testing.T) {
	t.Parallel()
	n := nodeSource{flags: &nodeFlags{images: []string{"lockquake=mine:1"}}, other: "/opt/a client"}
	want := "LOCKQUAKE_BIN='/opt/a client' lockquake run etcd-healthy --provider local --image lockquake=mine:1"
	if got := n.replay("etcd-healthy", nil, "local"); got != want {
		t.Errorf("replay is\n%s\nshould be\n%s", got, want)
	}
	image := map[string]string{"lockquake": "mine:1"}
	for _, c := range []struct {
		provider string
		images   map[string]string
		want     string
	}{{"local", nil, "/opt/client"}, {"docker", image, "image mine:1"}, {"inproc", nil, ""}} {
		if got := standIn(c.provider, c.images, "/opt/client"); got != c.want {
			t.Errorf("on %s with images %v it is %q that stood in, should be %q", c.provider, c.images, got, c.want)
		}
	}
}

// TestEveryFlagSaysWhatItTakes: a value that a flag refuses is answered with what would be right, whatever the type of
// the flag.
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

func TestSeedsDiffer(t *testing.T) {
	t.Parallel()
	a, b := drawSeed(), drawSeed()
	if a == b || a == 0 || b == 0 {
		t.Errorf("drew %d and %d", a, b)
	}
	// Readers of JSON keep 53 bits of a number.
	if a >= 1<<53 {
		t.Errorf("%d is too large for JSON", a)
	}
}

// TestTooLittleOfTheMachineIsTold: a limit of this process has one line with its cure, and the code of what is missing.
func TestTooLittleOfTheMachineIsTold(t *testing.T) {
	t.Parallel()
	err := enoughAddresses("run", 2_000_000<<10)
	if cli.ExitCode(err) != cli.CodeMissing || err.Error() != "run is unavailable: ulimit -v allows 1953 MiB of addresses here, and 4096 are needed: ulimit -v unlimited" {
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
