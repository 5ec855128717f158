//go:build integration

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockquake/lockquake/internal/choose"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

// TestChoose runs the loads, the server failure and the stories of a lock.
func TestChoose(t *testing.T) {
	t.Parallel()
	p := begin(t, "choose", "redis", "--quick", "--for", "500ms", "--provider", "local", "--format", "json")
	if code := p.wait(t); code != cli.CodeMet {
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
}
