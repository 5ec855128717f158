//go:build integration

package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/lockquake/lockquake/backends/memory"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/suite"
)

// runSuite runs a suite and returns its result and exit code. It is a separate process, because the clients of a
// memory lock are goroutines, which other work in the same process would delay.
func runSuite(t *testing.T, args ...string) (suite.Result, int) {
	t.Helper()
	p := begin(t, append([]string{"suite", "--format", "json"}, args...)...)
	code := p.wait(t)
	var got suite.Result
	if err := json.Unmarshal([]byte(p.stdout.String()), &got); err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, p.stderr.String())
	}
	return got, code
}

// TestSuiteFindsBrokenLocks runs each broken memory lock on the story that must find it, and the correct one on all of
// these stories.
func TestSuiteFindsBrokenLocks(t *testing.T) {
	t.Parallel()
	exact := []string{"memory/exact", "--quick", "--most", "99", "--ttl", "1s"}
	var tests patient
	for _, l := range memory.Backend().Locks {
		if l.Wrong == "" {
			continue
		}
		name, want := "memory/"+l.Name, l.Found.Stories[0]
		exact = append(exact, "--story", want.Story)
		tests.add(name, func(t *testing.T) {
			got, code := runSuite(t, name, "--quick", "--ttl", "1s", "--story", want.Story)
			if code == cli.CodeMet || len(got.Cells) != 1 || !redFor(got.Cells[0], want.Reasons) {
				t.Errorf("exit code %d, %+v", code, got.Cells)
			}
		})
	}
	right := func(least int, args ...string) func(t *testing.T) {
		return func(t *testing.T) {
			got, code := runSuite(t, args...)
			cells := slices.DeleteFunc(got.Cells, func(c suite.Cell) bool { return c.Apart != "" })
			if len(cells) < least || code != cli.CodeMet && code != cli.CodeInconclusive {
				t.Errorf("exit code %d, %d cells that apply", code, len(cells))
			}
			for _, c := range cells {
				if !green(t, c) {
					t.Errorf("%s is not green: %+v", c.Story, c)
				}
			}
		}
	}
	tests.add("exact", right(7, exact...))
	// the stories that do not apply to it
	tests.add("permits and reentry", right(2, "memory/semaphore", "memory/counts-entries", "--quick", "--ttl", "1s",
		"--story", "permits", "--story", "reentry"))
	tests.run(t)
}
