//go:build integration

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

// clientOf returns the pid of a client of a local run, found by its command line and its supervisor's mark.
func clientOf(t *testing.T, supervisor int) int {
	t.Helper()
	mark := fmt.Appendf(nil, ",pid=%d,", supervisor)
	for range 100 {
		files, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			env, err := os.ReadFile(f)
			if err != nil || !bytes.Contains(env, mark) {
				continue
			}
			command, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			if err != nil || !strings.HasSuffix(strings.TrimRight(string(command), "\x00"), "\x00client") {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
				return pid
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("no client of the run was found")
	return 0
}

// lostKilled is the reason of a run in which a client was killed from outside.
var lostKilled = regexp.MustCompile(`(?m)^client-\d+ ended without its final message \(signal: killed\); its actions after its last event, at \d+\.\d+ ms, cannot be judged`)

// TestClientKilledFromOutside kills a client from outside. Its unsent events are lost, so nothing may pass.
func TestClientKilledFromOutside(t *testing.T) {
	t.Parallel()
	p := begin(t, "run", "redis-healthy", "--provider", "local", "--format", "json", "--set", "run.for=4s")
	pid := clientOf(t, p.cmd.Process.Pid)
	p.says(t, "load")
	time.Sleep(time.Second)
	if pid < 2 {
		t.Fatalf("pid %d is no client", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != cli.CodeInconclusive {
		t.Errorf("exit code %d, want %d\n%s", code, cli.CodeInconclusive, p.stderr.String())
	}
	r := p.report(t)
	if r.Verdict != results.Unknown || !strings.Contains(strings.Join(r.Reasons, "; "), "ended without a fault") {
		t.Errorf("verdict %s: %v", r.Verdict, r.Reasons)
	}
	if !lostKilled.MatchString(strings.Join(r.Reasons, "\n")) {
		t.Errorf("no reason tells of the lost client: %q", r.Reasons)
	}
	for _, f := range r.Findings {
		if f.Verdict == results.Clean && f.Counts["double_grants"] != nil {
			t.Error("that no double grant was found is called clean")
		}
	}
	gone(t, p)
}
