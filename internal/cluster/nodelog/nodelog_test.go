package nodelog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/wait"
)

// patience ends a test that hangs.
const patience = time.Minute

// TestALogGoesOnInTheNextRun writes before and after a switch, directly and through a pipe as a child process does.
func TestALogGoesOnInTheNextRun(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")
	b, err := Open(first)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Writer("server-1")
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := b.ForChild("server-2", true)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(s, "one")
	fmt.Fprintln(pipe, "two")
	// The copy runs in a goroutine.
	wait.Until(t, patience, "what was written into the pipe arrives", func() bool { return has(t, first, "server-2") == "two\n" })
	ended, err := b.Writer("client-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SwitchTo(second, []string{"client-1"}); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(ended, "last words")
	if got := has(t, first, "client-1"); got != "last words\n" {
		t.Errorf("the log of a client that ended with the first run is %q", got)
	}
	if _, err := os.Stat(filepath.Join(second, "client-1.log")); err == nil {
		t.Error("a client that ended with the first run has a log in the second")
	}
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(s, "three")
	fmt.Fprintln(pipe, "four")
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, patience, "what was written into the pipe arrives", func() bool { return strings.HasSuffix(has(t, second, "server-2"), "four\n") })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := has(t, first, "server-1"); got != "one\n" {
		t.Errorf("the first run's log is %q", got)
	}
	want := "lockquake: server-1 continues from an earlier run; its earlier output is in " + filepath.Join(first, "server-1.log") + "\nthree\n"
	if got := has(t, second, "server-1"); got != want {
		t.Errorf("the second run's log is %q, want %q", got, want)
	}
}

// TestALogIsBounded writes more than a log may hold.
func TestALogIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Writer("client-1")
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, maxLog/4)
	for range 6 {
		if n, err := s.Write(block); n != len(block) || err != nil {
			t.Fatalf("%d bytes written, %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got := has(t, dir, "client-1")
	const said = "\nlockquake: client-1 wrote more than 64 MiB; the rest is omitted\n"
	if len(got) != maxLog+len(said) || !strings.HasSuffix(got, said) {
		t.Errorf("the log has %d bytes and ends with %q", len(got), got[max(0, len(got)-100):])
	}
}

func has(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
