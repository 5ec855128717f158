//go:build integration

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/choose"
	"github.com/lockquake/lockquake/results"
)

// TestChoose: a lock has its loads, loses its server, and is broken by stories.
func TestChoose(t *testing.T) {
	t.Parallel()
	p := begin(t, "choose", "redis", "--quick", "--for", "500ms", "--provider", "local", "--format", "json")
	if code := p.wait(t); code != codeMet {
		t.Fatalf("exit code %d\n%s", code, p.stderr.String())
	}
	var r choose.Result
	if err := json.Unmarshal([]byte(p.stdout.String()), &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != choose.Schema || len(r.Rows) != 1 || r.Provider != "local" {
		t.Fatalf("%s of %d rows on %s", r.Schema, len(r.Rows), r.Provider)
	}
	for _, row := range r.Rows {
		for _, l := range row.Loads {
			if len(l.Samples) != 1 || l.Samples[0].Cycles < 1 || l.Samples[0].Requests == nil {
				t.Errorf("%s on %d locks: %+v", row.Lock, l.Locks, l.Samples)
			}
		}
		if l := row.Loss; l == nil || !l.Bit || l.Target != "redis-1" || l.Gap == nil || l.Double == nil || l.Verdict != results.Pass {
			t.Errorf("%s: its server was lost so: %+v", row.Lock, l)
		} else if *l.Gap < 2000 {
			t.Errorf("%s: somebody got a lock from a server that was not there: a gap of %v ms", row.Lock, *l.Gap)
		}
		if len(row.Breaks) == 0 || row.Breaks[0].Counts[0] != "double_grants" {
			t.Errorf("%s is broken by %+v", row.Lock, row.Breaks)
		}
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "runs", "choose-*", choose.File))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	if b, err := os.ReadFile(files[0]); err != nil || len(b) == 0 {
		t.Error(err)
	}
	goesOn(t, filepath.Dir(files[0]), r)
}

// goesOn cuts the journal of a choose off within its last line, as a machine does that dies, and goes on: that run alone is made again, unless the
// budget has no time for it.
func goesOn(t *testing.T, dir string, whole choose.Result) {
	t.Helper()
	path := filepath.Join(dir, campaign.File)
	b, err := os.ReadFile(path)
	if err != nil || os.WriteFile(path, b[:len(b)-9], 0o600) != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		budget string
		code   int
		runs   int
	}{{"1ms", codeInconclusive, 0}, {"0", codeMet, 1}} {
		q := begin(t, "choose", "redis", "--quick", "--for", "500ms", "--provider", "local", "--format", "json", "--resume", dir, "--budget", c.budget)
		code := q.wait(t)
		var r choose.Result
		if err := json.Unmarshal([]byte(q.stdout.String()), &r); err != nil || code != c.code || strings.Count(q.stderr.String(), "run 3 of 3: ") != c.runs || strings.Contains(q.stderr.String(), "run 2 of 3") {
			t.Fatalf("--budget %s: exit code %d, %v\n%s", c.budget, code, err, q.stderr.String())
		}
		if row := r.Rows[0]; r.Seed != whole.Seed || len(row.Loads[1].Samples) != 1 || row.Loads[1].Samples[0].Cycles != whole.Rows[0].Loads[1].Samples[0].Cycles || (row.Loss != nil) != (c.runs > 0) {
			t.Errorf("--budget %s: %+v", c.budget, row)
		}
	}
}
