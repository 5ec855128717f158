//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/suite"
)

// runSuite runs a suite and returns what came of it, with the exit code.
func runSuite(t *testing.T, args ...string) (suite.Result, int) {
	t.Helper()
	var out, told bytes.Buffer
	code := execute(append([]string{"suite", "--format", "json", "--out", t.TempDir()}, args...), streams{in: strings.NewReader(""), out: &out, err: &told})
	var got suite.Result
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, &told)
	}
	return got, code
}

// TestSuiteFindsBrokenLocks puts each broken lock of memory to the story that must find it, and the right one to all of these.
func TestSuiteFindsBrokenLocks(t *testing.T) {
	t.Parallel()
	finds := map[string][2]string{ // by lock: story, and what it finds
		"never-excludes":   {"contention", "double_grants 0: found"},
		"expires-early":    {"late-release", "double_grants 0: found"},
		"forgets-renewals": {"renewal", "double_grants 0: found"},
		"reuses-tokens":    {"late-release", "token_regressions 0: found"},
		"falling-tokens":   {"contention", "token_regressions 0: found"},
		"wraps-tokens":     {"many-holds", "token_regressions 0: found"},
		"late-fence":       {"late-token-granted", "false_refusals 0: found"},
		"frees-foreign":    {"late-release", "double_grants 0: found"},
		"never-expires":    {"overdue", "held_beyond_validity_ms <"},
		"last-first":       {"queue", "starved_users 0: found"},
		"never-refuses":    {"late-release", "false_results 0: found"},
		"keeps-released":   {"answers", "false_results 0: found"},
		"denies-renewals":  {"answers", "false_results 0: found"},
		"grants-to-nobody": {"gives-up", "orphans 0: found"},
		"storms":           {"waiting", "requests_per_wait_s <500: measured"},
	}
	exact := []string{"memory/exact", "--quick", "--ttl", "1s"}
	for _, b := range catalog().Backends {
		if b.Name != "memory" {
			continue
		}
		for _, l := range b.Locks {
			want, ok := finds[l.Name]
			if ok != (l.Wrong != "") {
				t.Errorf("%s is wrong for %q, and the story is %q", l.Name, l.Wrong, want[0])
			}
			if !ok {
				continue
			}
			exact = append(exact, "--story", want[0])
			t.Run(l.Name, func(t *testing.T) {
				t.Parallel()
				got, code := runSuite(t, "memory/"+l.Name, "--quick", "--ttl", "1s", "--story", want[0])
				if code != codeFailed || len(got.Cells) != 1 || got.Cells[0].State() != suite.Red || !strings.HasPrefix(got.Cells[0].Runs[0].Reasons[0], want[1]) {
					t.Errorf("exit code %d, %+v", code, got.Cells)
				}
			})
		}
	}
	t.Run("exact", func(t *testing.T) {
		t.Parallel()
		got, code := runSuite(t, exact...)
		if s := got.Sums(); code != codeMet || s.Green != len(got.Cells) || s.Green < 7 {
			t.Errorf("exit code %d, %v: %+v", code, s, got.Cells)
		}
	})
}
