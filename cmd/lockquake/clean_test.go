//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
)

// openTerminal opens a terminal: what is written to person can be read from seat, and vice versa.
func openTerminal(t *testing.T) (person, seat *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	seat, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = seat.Close() })
	return person, seat
}

// TestCleanAllAsks: a kept directory is listed, and stays unless a person at a terminal confirms.
func TestCleanAllAsks(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	kept := filepath.Join(tmp, fmt.Sprintf("lockquake-%d", os.Getuid()), "kept-by-others")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kept, "owner"), []byte("run=kept-by-others,pid=7,start=7,boot=b,pidns=p,host=h,keep=true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	person, seat := openTerminal(t)
	for name, c := range map[string]struct {
		in   io.Reader
		says string
	}{
		"no terminal": {nil, "--yes removes it"},
		"no":          {seat, "nothing was removed"},
	} {
		if c.in != nil {
			if _, err := person.WriteString("n\n"); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("lockquake", "clean", "--all")
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "DOCKER_HOST=unix:///nonexistent/docker.sock")
		cmd.Stdin = c.in
		said, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != cli.CodeUsage {
			t.Errorf("%s: exit code %d", name, code)
		}
		for _, want := range []string{"directory " + kept + "\n", c.says} {
			if !strings.Contains(string(said), want) {
				t.Errorf("%s: it does not say %q:\n%s", name, want, said)
			}
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAgree asks at a terminal. `clean --all` does nothing else before it removes what it found.
func TestAgree(t *testing.T) {
	t.Parallel()
	person, seat := openTerminal(t)
	found := cluster.Swept{Containers: []string{"mine"}}
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "\n": false, "n\n": false, "yesterday\n": false} {
		if _, err := person.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if err := agree(t.Context(), cli.Streams{In: seat, Err: io.Discard}, found); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
	if err := agree(t.Context(), cli.Streams{In: strings.NewReader("y\n"), Err: io.Discard}, found); cli.ExitCode(err) != cli.CodeUsage {
		t.Errorf("asked where there is no terminal: %v", err)
	}
	if err := agree(t.Context(), cli.Streams{In: strings.NewReader(""), Err: io.Discard}, cluster.Swept{}); err != nil {
		t.Errorf("asked about nothing: %v", err)
	}
}
