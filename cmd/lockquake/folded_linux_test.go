package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/cli"
)

// inTerminal runs a command line in a terminal of the given width, and returns the output.
func inTerminal(t *testing.T, width int, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: 24}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // fails at the end, when the other side is closed
		shown <- string(text)
	}()
	var said bytes.Buffer
	if code := execute(args, cli.Streams{In: strings.NewReader(""), Out: terminal, Err: &said}); code != cli.CodeMet {
		t.Errorf("%q ends with %d: %s", args, code, said.String())
	}
	terminal.Close()
	return strings.ReplaceAll(<-shown, "\r\n", "\n")
}

// TestVerbsFoldAtTheWidthOfTheTerminal: text is folded, except examples and paths, which are for copying, and longer
// words.
func TestVerbsFoldAtTheWidthOfTheTerminal(t *testing.T) {
	t.Parallel()
	const width = 80
	runs := t.TempDir()
	var said bytes.Buffer
	if code := execute([]string{"run", "memory-healthy", "--set", "run.for=200ms", "--set", `expect.judged=">=0"`, "--out", runs}, cli.Streams{Out: io.Discard, Err: &said}); code == cli.CodeUsage {
		t.Fatal(said.String())
	}
	made, err := filepath.Glob(filepath.Join(runs, "memory-healthy", "2*"))
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	for _, args := range [][]string{
		{"--help"},
		{"run", "--help"},
		{"suite", "--help"},
		{"choose", "--help"},
		{"compare", "--help"},
		{"list", "scenarios"},
		{"list", "faults"},
		{"list", "measures"},
		{"list", "locks"},
		{"run", "memory-healthy", "--dry-run"},
		{"compare", made[0], "--out", runs},
	} {
		text := inTerminal(t, width, args...)
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, "\n")
			if len([]rune(line)) > width && !strings.HasPrefix(line, "  lockquake ") && !strings.HasPrefix(line, "report ") && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%q prints a line of %d columns: %s", args, len([]rune(line)), line)
			}
		}
		if !strings.Contains(text, "\n") {
			t.Errorf("%q prints %q", args, text)
		}
	}
}
