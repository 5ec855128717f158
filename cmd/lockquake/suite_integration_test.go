//go:build integration

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/internal/suite"
)

// greenBeside is how many cells of besideWrong must be green.
const greenBeside = 9

// besideWrong is a lock that is wrong as it is set, and right locks that are put to the same stories as the wrong ones.
const besideWrong = `  - {name: storms, backend: redis, lock: set-px-lua, set: [backend.retry.delay=0s], stories: [waiting]}
  - {backend: redis, lock: set-px-lua, stories: [crash, late-release, still-clock, answers, gives-up, waiting, slow-replies, slow-release]}
  - {backend: redlock, lock: redlock, stories: [late-replies]}
`

// TestSuiteFindsWrongLocks puts each wrong lock on Redis to the story that must find it, and right ones to the same.
func TestSuiteFindsWrongLocks(t *testing.T) {
	on := []string{"redis", "redlock"}
	if everything() {
		on = append(on, "sentinel", "rediscluster")
	}
	want := map[string][]string{"storms waiting": {"requests_per_wait_s <500: measured"}} // what the documentation says is wrong with each
	rows := "locks:\n" + besideWrong
	for _, b := range catalog().Backends {
		for _, l := range b.Locks {
			if !slices.Contains(on, b.Name) {
				continue
			}
			for _, f := range findingsOf(b.Name, l.Name) {
				set := ""
				if f.story == "contention" { // it is found by chance: three times in a thousand grants, of which a quick run has a thousand
					set = ", set: [run.for=8s]"
				}
				cell := b.Name + "/" + l.Name + " " + f.story
				if want[cell] == nil {
					rows += fmt.Sprintf("  - {backend: %s, lock: %s, stories: [%s]%s}\n", b.Name, l.Name, f.story, set)
				}
				want[cell] = append(want[cell], f.reason)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	got, code := runSuite(t, file, "--quick", "--ttl", "1s", "--provider", "local")
	if code != codeFailed || len(got.Cells) != len(want)+greenBeside {
		t.Errorf("exit code %d, %d cells", code, len(got.Cells))
	}
	for _, c := range got.Cells {
		reasons := want[c.Lock+" "+c.Story]
		delete(want, c.Lock+" "+c.Story)
		switch {
		case reasons == nil && c.State() != suite.Green:
			t.Errorf("%s, %s is not green: %+v", c.Lock, c.Story, c)
		case reasons != nil && !redFor(c, reasons):
			t.Errorf("%s, %s: want %q: %+v", c.Lock, c.Story, reasons, c)
		}
	}
	if len(want) > 0 {
		t.Errorf("no story here finds %v", want)
	}
}

// redFor tells whether a cell is red for all of these reasons, of which each is the beginning.
func redFor(c suite.Cell, reasons []string) bool {
	return c.State() == suite.Red && !slices.ContainsFunc(reasons, func(want string) bool {
		return !slices.ContainsFunc(c.Runs[0].Reasons, func(r string) bool { return strings.HasPrefix(r, want) })
	})
}

// TestSuiteFindsTheWrongLockOfEtcd34: its server says yes to a waiter whose lease is over, and one lock believes it. The other asks again.
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
	if code != codeFailed || len(got.Cells) != 2 {
		t.Fatalf("exit code %d, %d cells", code, len(got.Cells))
	}
	blind, careful := got.Cells[0], got.Cells[1]
	if !redFor(blind, []string{findings["etcd/v3lock-blind"][0].reason}) || careful.State() != suite.Green {
		t.Errorf("%+v\n%+v", blind, careful)
	}
}

// TestSuiteIsPlannable demands that each story of each lock, and random chaos, could be started.
func TestSuiteIsPlannable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	python, err := filepath.Abs("../../clients/python/testdata")
	if err != nil {
		t.Fatal(err)
	}
	text := "random: {seeds: [1]}\nstories: [default]\nlocks:\n"
	for _, b := range catalog().Backends {
		if b.Name == external.Name { // whose locks are in a program
			text += "  - {backend: external, client: {run: [python3, toy_lock.py], dir: " + python + "}, set: ['backend.start={command: [x], ports: {client: 1}}']}\n"
			continue
		}
		text += "  - {backend: " + b.Name + ", lock: \"*\"}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, told bytes.Buffer
	code := execute([]string{"suite", file, "--dry-run", "--provider", "local"}, streams{in: strings.NewReader(""), out: &out, err: &told})
	if code != codeMet || strings.Contains(told.String(), "not run:") || strings.Count(told.String(), ", random-1: Users fight") < 30 {
		t.Errorf("exit code %d\n%s", code, &told)
	}
	for _, want := range []string{
		"external/own by python3 toy_lock.py, late-release: A holder", "does not apply: external/own by python3 toy_lock.py, answers: nobody can ask the service",
	} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("it does not say %q\n%s", want, &told)
		}
	}
}
