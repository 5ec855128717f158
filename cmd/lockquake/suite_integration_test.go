//go:build integration

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/results"
)

// wrongCells lists the cells for the Redis locks in `make test` or `make test-all`. Each wrong lock is run on the
// story that must find it. The first lock of the service, which is correct, is run on the same stories. The rows are
// those of a suite file; want has the reasons by cell, none for a correct lock.
func wrongCells(on ...string) (rows []string, want map[string][]string) {
	want = map[string][]string{}
	add := func(backend, lock, story string, reasons ...string) {
		cell := backend + "/" + lock + " " + story
		if _, known := want[cell]; !known {
			set := ""
			switch {
			case story == "contention": // found by chance: three in a thousand grants, as many as a quick run has
				set = ", set: [run.for=8s]"
			case backend == "redlock" && (story == "hang-one" || story == "refuse"):
				// A call asks a silent server, and then asks it to take that back. Both together must end well within
				// the TTL of a second, after which a wait counts as deaf.
				set = ", set: [backend.node_timeout=200ms]"
			case backend == "redlock": // a stall of five servers beyond the usual 50 ms must not leave an attempt in doubt
				set = ", set: [backend.node_timeout=500ms]"
			case lock == "wasteful" && story == "waiting" && !everything(): // a busy machine leaves a loop less than the 400 ms/s of the story
				set = ", set: ['expect.client_cpu_ms_per_wait_s=<20']"
			}
			rows = append(rows, fmt.Sprintf("  - {backend: %s, lock: %s, stories: [%s]%s}\n", backend, lock, story, set))
		}
		want[cell] = append(want[cell], reasons...)
	}
	for _, b := range nodes.Catalog().Backends {
		if !slices.Contains(on, b.Name) {
			continue
		}
		for _, l := range b.Locks {
			for _, f := range l.Found.Stories {
				if leftToAllLocks[b.Name+"/"+l.Name+" "+f.Story] == "" || everything() {
					add(b.Name, l.Name, f.Story, f.Reasons...)
					add(b.Name, b.Locks[0].Name, f.Story)
				}
			}
		}
	}
	return rows, want
}

// TestSuiteFindsWrongLocks: wrong locks are red for the documented reason, and correct ones beside them are green.
func TestSuiteFindsWrongLocks(t *testing.T) {
	t.Parallel()
	on := []string{"redis", "redlock"}
	if everything() {
		on = append(on, "sentinel", "rediscluster")
	}
	rows, want := wrongCells(on...)
	if len(want) < 12 {
		t.Fatalf("there are only %d cells", len(want))
	}
	const suites = 3 // side by side: they wait more than they work
	for first := range suites {
		var part []string
		for i := first; i < len(rows); i += suites {
			part = append(part, rows[i])
		}
		t.Run(strconv.Itoa(first+1), func(t *testing.T) {
			t.Parallel()
			got, code := runSuite(t, scenarioFile(t, "locks:\n"+strings.Join(part, "")), "--quick", "--ttl", "1s", "--provider", "local")
			if code == cli.CodeMet || len(got.Cells) != len(part) {
				t.Errorf("exit code %d, %d cells of %d rows", code, len(got.Cells), len(part))
			}
			for _, c := range got.Cells {
				reasons, known := want[c.Lock+" "+c.Story]
				switch {
				case !known:
					t.Errorf("%s, %s is in no row", c.Lock, c.Story)
				case len(reasons) == 0 && !green(t, c):
					t.Errorf("%s, %s is not green: %+v", c.Lock, c.Story, c)
				case len(reasons) > 0 && !redFor(c, reasons):
					t.Errorf("%s, %s: want %q: %+v", c.Lock, c.Story, reasons, c)
				}
			}
		})
	}
}

// TestAnEagerWaiterIsFound: a correct lock that retries without a pause loads its server.
func TestAnEagerWaiterIsFound(t *testing.T) {
	leftToAll(t, "TestSuiteFindsBrokenLocks has memory/storms, and TestSuiteFindsWrongLocks a lock that is wasteful while it waits")
	const rows = "locks:\n  - {backend: redis, lock: set-px-lua, set: [backend.retry.delay=0s], stories: [waiting]}\n"
	got, code := runSuite(t, scenarioFile(t, rows), "--quick", "--ttl", "1s", "--provider", "local")
	if code != cli.CodeFailed || len(got.Cells) != 1 || !redFor(got.Cells[0], []string{"requests_per_wait_s <500: measured"}) {
		t.Errorf("exit code %d: %+v", code, got.Cells)
	}
}

// redFor reports whether a cell is red for all of these reasons, each given by its beginning. On a machine that stands
// still it may be unknown for them: "stuck_locks 0 (found 1): engine did not run for 700 ms".
func redFor(c suite.Cell, reasons []string) bool {
	return (c.State() == suite.Red || c.State() == suite.Unknown) && !slices.ContainsFunc(reasons, func(want string) bool {
		return !slices.ContainsFunc(c.Runs[0].Reasons, func(r string) bool {
			open := strings.HasPrefix(r, strings.Replace(want, ": found", " (found", 1)) && strings.Contains(r, " did not run for ")
			return c.State() == suite.Red && strings.HasPrefix(r, want) || open
		})
	})
}

// green reports whether a cell is green, or unknown only because a process of lockquake stood still. The latter is
// logged.
func green(t *testing.T, c suite.Cell) bool {
	t.Helper()
	for _, r := range c.Runs {
		if r.Verdict == results.Unknown && !slices.ContainsFunc(r.Reasons, func(why string) bool { return !strings.Contains(why, " did not run for ") }) {
			t.Logf("%s, %s is not looked at: %v", c.Lock, c.Story, r.Reasons)
		} else if r.Verdict != results.Pass {
			return false
		}
	}
	return len(c.Runs) > 0
}

// TestSuiteFindsTheWrongLockOfEtcd34: etcd 3.4 accepts a waiter whose lease has expired, and one lock believes it. The
// other one asks again.
func TestSuiteFindsTheWrongLockOfEtcd34(t *testing.T) {
	leftToAll(t, "the locks of Redis show that a suite finds wrong ones")
	file := filepath.Join(t.TempDir(), "wrong.yaml")
	const rows = `stories: [waiter-cut]
locks:
  - {backend: etcd, lock: v3lock-blind, set: [backend.version=3.4]}
  - {backend: etcd, lock: v3lock, set: [backend.version=3.4]}
`
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	got, code := runSuite(t, file, "--provider", "docker")
	if code != cli.CodeFailed || len(got.Cells) != 2 {
		t.Fatalf("exit code %d, %d cells", code, len(got.Cells))
	}
	blind, careful := got.Cells[0], got.Cells[1]
	if !redFor(blind, lockOf(t, "etcd", "v3lock-blind").Found.Stories[0].Reasons) || !green(t, careful) {
		t.Errorf("%+v\n%+v", blind, careful)
	}
}
