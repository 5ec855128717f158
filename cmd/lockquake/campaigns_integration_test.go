//go:build integration

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
)

// TestCampaigns: every verb that makes many runs handles an interrupt, a death in the middle of a journal line, a
// budget, and --resume in the same way.
func TestCampaigns(t *testing.T) {
	t.Parallel()
	for verb, c := range map[string]struct {
		args  []string
		runs  int // total
		spent int // exit code if the budget has no time for any run
	}{
		"run":      {[]string{"memory-healthy", "--set", "run.for=500ms", "--set", "run.settle=0s", "--repeat", "4"}, 4, cli.CodeInconclusive},
		"suite":    {[]string{"memory", "--story", "contention", "--set", "run.for=500ms", "--repeat", "4"}, 4, cli.CodeInconclusive},
		"capacity": {[]string{"--backend", "memory", "--users", "1,2", "--repeat", "2", "--for", "500ms", "--warmup", "50ms"}, 4, cli.CodeUsage},
		"choose":   {[]string{"redis", "--quick", "--for", "500ms", "--provider", "local"}, 3, cli.CodeInconclusive},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			p := begin(t, append([]string{verb}, c.args...)...)
			path := journalOf(t, p)
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != cli.CodeInterrupted {
				t.Fatalf("interrupted: exit code %d\n%s", code, p.stderr.String())
			}
			whole := resultsIn(t, path)
			if n := len(whole); n < 1 || n >= c.runs {
				t.Fatalf("interrupted with %d results of %d", n, c.runs)
			}
			text, err := os.ReadFile(path)
			if err != nil || os.WriteFile(path, text[:len(text)-9], 0o600) != nil {
				t.Fatal(err)
			}
			kept := text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]
			for _, again := range []struct {
				budget string
				code   int
				runs   int
			}{{"1ms", c.spent, len(whole) - 1}, {"0", cli.CodeMet, c.runs}} {
				q := begin(t, append([]string{verb, "--resume", filepath.Dir(path), "--budget", again.budget}, c.args...)...)
				code := q.wait(t)
				if code == cli.CodeInconclusive && again.code == cli.CodeMet {
					code = cli.CodeMet // the machine disturbed a run, but the run was made
				}
				if code != again.code || again.code == cli.CodeInconclusive && !strings.Contains(q.stdout.String()+q.stderr.String(), "the budget of 1ms") {
					t.Fatalf("--budget %s: exit code %d, want %d\n%s%s", again.budget, code, again.code, q.stdout.String(), q.stderr.String())
				}
				if n := len(resultsIn(t, path)); n != again.runs {
					t.Errorf("--budget %s: %d results, want %d", again.budget, n, again.runs)
				}
			}
			if text, err = os.ReadFile(path); err != nil || !bytes.HasPrefix(text, kept) {
				t.Errorf("what was run before is another: %v\n%s\nwas\n%s", err, text, kept)
			}
			other := begin(t, append([]string{verb, "--resume", filepath.Dir(path), "--set", "backend.ttl=7s"}, c.args...)...)
			if code := other.wait(t); verb != "choose" && (code != cli.CodeUsage || !strings.Contains(other.stderr.String(), "the command differs")) {
				t.Errorf("gone on with by another command: exit code %d\n%s", code, other.stderr.String())
			}
		})
	}
}

// journalOf waits until a campaign's journal has a result, and returns its path.
func journalOf(t *testing.T, p *process) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(p.dir, "runs", "*", campaign.File))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if text, err := os.ReadFile(path); err == nil && bytes.Count(text, []byte("\n")) >= 2 {
				return path
			}
		}
	}
	t.Fatalf("no result within a minute\n%s", p.stderr.String())
	return ""
}

// resultsIn reads a journal, and requires every line to be complete.
func resultsIn(t *testing.T, path string) []campaign.Result {
	t.Helper()
	j, err := campaign.Open(filepath.Dir(path))
	if err != nil || j.Dropped {
		t.Fatalf("%s: a line was cut off, or %v", path, err)
	}
	defer func() { _ = j.Close() }()
	return j.Results()
}
