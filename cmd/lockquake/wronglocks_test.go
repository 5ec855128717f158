package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/stories"
)

// leftToAllLocks lists stories of locks that run only in `make test-all`, each with the lock for which `make test`
// sees the same reason.
var leftToAllLocks = map[string]string{
	"redis/setnx-expire crash-setnx-done":      "redis/setnx",
	"redis/set-px-del late-release":            "redis/weak-owner",
	"redis/get-then-del late-release-get-done": "redis/weak-owner",
	"redlock/redlock-incr contention":          "memory/falling-tokens",
	"redlock/redlock-counts-errors no-quorum":  "redlock/redlock-counts-errors",
	"redlock/redlock-keeps-votes no-quorum":    "redlock/redlock-keeps-votes",
	// Its grant must end within the 100 ms between two requests of a release. A machine that takes a core away for 200
	// ms breaks that timing.
	"redis/get-then-del slow-release": "redis/weak-owner",
	// On a busy machine the kernel may send the lost renewal again between the end of the cut and the reset.
	"redis/resends-renewals resent-renewal": "redis/swallows-errors",
}

// lockOf returns a lock of a backend.
func lockOf(t *testing.T, backend, name string) backends.Lock {
	t.Helper()
	for _, b := range nodes.Catalog().Backends {
		for _, l := range b.Locks {
			if b.Name == backend && l.Name == name {
				return l
			}
		}
	}
	t.Fatalf("%s has no lock %s", backend, name)
	return backends.Lock{}
}

// TestEveryWrongLockNamesItsStory: a wrong lock names stories that apply to it, and existing checks of the
// conformance suite. A correct lock names none.
func TestEveryWrongLockNamesItsStory(t *testing.T) {
	t.Parallel()
	checks := map[string]bool{}
	for _, c := range conformance.Checks() {
		checks[c.Name] = true
	}
	for _, b := range nodes.Catalog().Backends {
		for _, l := range b.Locks {
			name := b.Name + "/" + l.Name
			if len(l.Found.Stories) > 0 != (l.Wrong != "") || l.Wrong == "" && len(l.Found.Checks) > 0 {
				t.Errorf("%s: Wrong is %q and Found is %+v: a lock needs both or none", name, l.Wrong, l.Found)
			}
			for _, c := range l.Found.Checks {
				if !checks[strings.TrimSuffix(c, "?")] {
					t.Errorf("%s: Found.Checks names %s, and the conformance suite has no such check", name, c)
				}
			}
			for _, f := range l.Found.Stories {
				if f.Story == "" || f.Shows == "" || len(f.Reasons) == 0 {
					t.Errorf("%s: Found.Stories has %+v, in which something is missing", name, f)
				}
				if !applies(b.Backend, l, f.Story) {
					t.Errorf("%s: Found.Stories names %s, which does not apply to it", name, f.Story)
				}
			}
		}
	}
}

// TestReasonsLeftToTestAllAreCovered: if a red cell is left to `make test-all`, `make test` sees the same reason in a cell of
// another lock.
func TestReasonsLeftToTestAllAreCovered(t *testing.T) {
	t.Parallel()
	for cell, like := range leftToAllLocks {
		name, story, _ := strings.Cut(cell, " ")
		find := func(lock string) []backends.Finding {
			backend, name, _ := strings.Cut(lock, "/")
			return lockOf(t, backend, name).Found.Stories
		}
		left := find(name)
		i := slices.IndexFunc(left, func(f backends.Finding) bool { return f.Story == story })
		if i < 0 {
			t.Errorf("%s is left to make test-all, and nothing is found there", cell)
			continue
		}
		if !slices.ContainsFunc(find(like), func(f backends.Finding) bool {
			return slices.Equal(f.Reasons, left[i].Reasons) && leftToAllLocks[like+" "+f.Story] == ""
		}) {
			t.Errorf("%s is left to make test-all, but %s is not found for %q", cell, like, left[i].Reasons)
		}
	}
}

// applies reports whether a story of the default suite applies to that lock.
func applies(b backends.Backend, l backends.Lock, story string) bool {
	s := stories.Subject{Backend: b.Name, Servers: b.Servers, Lock: l, TTL: time.Second, Clients: 2, Users: 2, InProcess: b.InProcess}
	return slices.ContainsFunc(stories.Of(s), func(x stories.Story) bool { return x.Name == story && x.Why(s) == "" })
}

// TestSuiteIsPlannable demands that each story of each lock, and random chaos, could be started.
func TestSuiteIsPlannable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "all.yaml")
	python, err := filepath.Abs("../../clients/python/testdata")
	if err != nil {
		t.Fatal(err)
	}
	text := "random: {seeds: [1]}\nstories: [default]\nlocks:\n"
	for _, b := range nodes.Catalog().Backends {
		if b.Name == external.Name { // its locks are in an external program
			text += "  - {backend: external, client: {run: [python3, toy_lock.py], dir: " + python + "}, set: ['backend.start={command: [x], ports: {client: 1}}']}\n"
			continue
		}
		text += "  - {backend: " + b.Name + ", lock: \"*\"}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, told bytes.Buffer
	code := execute([]string{"suite", file, "--dry-run", "--provider", "local"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &told})
	if code != cli.CodeMet || strings.Contains(out.String(), "not run:") || strings.Count(out.String(), ", random-1: Users compete") < 30 {
		t.Errorf("exit code %d\n%s\n%s", code, &out, &told)
	}
	for _, want := range []string{
		"external/own by python3 toy_lock.py, late-release: A holder", "does not apply: external/own by python3 toy_lock.py, answers: the service",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q\n%s", want, &out)
		}
	}
}
