//go:build integration

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/hunt"
)

// TestHuntHandsOutWhatRunTakes: load alone breaks a lock that never excludes. The script is shrunk, and `run` passes
// it.
func TestHuntHandsOutWhatRunTakes(t *testing.T) {
	t.Parallel()
	p := begin(t, "hunt", "--backend", "memory", "--lock", "never-excludes", "--budget", "1m", "--shrink-budget", "5m", "--seed", "1",
		"--fail-on", "double_grants", "--format", "json")
	if code := p.wait(t); code != cli.CodeFailed {
		t.Fatalf("exit code %d\n%s", code, p.stderr.String())
	}
	var got hunt.Result
	if err := json.Unmarshal([]byte(p.stdout.String()), &got); err != nil {
		t.Fatal(err)
	}
	x := got.Shrunk
	if !got.Found("double_grants") || !x.HandedOut() || x.Size.Faults != 0 {
		t.Fatalf("it hands out %+v", x)
	}
	dirs, err := filepath.Glob(filepath.Join(p.dir, "runs", "hunt-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%v, %v", dirs, err)
	}
	for _, file := range []string{hunt.File, hunt.FileReport, x.File, filepath.Join(x.RunDir, "report.html")} {
		if _, err := os.Stat(filepath.Join(dirs[0], file)); err != nil {
			t.Error(err)
		}
	}
	q := begin(t, "run", filepath.Join(dirs[0], x.File))
	if code := q.wait(t); code != cli.CodeMet {
		t.Errorf("run ends with %d\n%s", code, q.stdout.String())
	}
}

// TestHuntGoesOn: an interrupted hunt reports what it has, and resumes in the same journal until its budget is spent.
func TestHuntGoesOn(t *testing.T) {
	t.Parallel()
	args := []string{"hunt", "--backend", "memory", "--goal", "double_grants", "--budget", "30s"}
	p := begin(t, args...)
	path := journalOf(t, p)
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != cli.CodeInterrupted {
		t.Fatalf("interrupted: exit code %d\n%s", code, p.stderr.String())
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	q := begin(t, append(args, "--resume", filepath.Dir(path))...)
	if code := q.wait(t); code != cli.CodeMet {
		t.Fatalf("gone on with: exit code %d\n%s", code, q.stderr.String())
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(after, before) || len(after) == len(before) {
		t.Errorf("the journal has no more runs, or other ones: %v", err)
	}
	got, err := hunt.Read(filepath.Dir(path))
	if err != nil || got.Interrupted || len(got.Findings) > 0 || got.Runs != len(resultsIn(t, path)) {
		t.Errorf("%+v, %v", got, err)
	}
}
