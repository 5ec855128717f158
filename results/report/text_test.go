package report

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/results"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

func TestText(t *testing.T) {
	for name, s := range map[string]synthetic{
		"paused.txt": pausedRun(t, false), "fenced.txt": pausedRun(t, true), "restart.txt": restartRun(t), "healthy.txt": healthyRun(t),
	} {
		s.report.RunDir = "runs/" + s.report.Scenario + "/20250102-030405-42"
		var b bytes.Buffer
		must(t, Text(&b, s.report))
		golden(t, name, b.Bytes())
		for _, line := range strings.Split(b.String(), "\n") {
			if n := len([]rune(line)); n > textWidth {
				t.Errorf("%s: a line has %d columns: %s", name, n, line)
			}
		}
		if strings.Contains(b.String(), "\x1b") {
			t.Errorf("%s: colour codes that nobody asked for", name)
		}
		if !strings.HasSuffix(b.String(), s.report.RunDir+"\n") {
			t.Errorf("%s: the run directory is not the last line", name)
		}
	}
}

func TestTextColour(t *testing.T) {
	var plain, coloured bytes.Buffer
	r := healthyRun(t).report
	must(t, Text(&plain, r))
	must(t, Text(&coloured, r, Colour()))
	if !strings.Contains(coloured.String(), "\x1b[1;31mFAIL\x1b[0m") {
		t.Error("a failure is not red")
	}
	bare := strings.NewReplacer("\x1b[1;31m", "", "\x1b[1;32m", "", "\x1b[1;33m", "", "\x1b[0m", "").Replace(coloured.String())
	if d := cmp.Diff(plain.String(), bare); d != "" {
		t.Errorf("colour changes more than colour:\n%s", d)
	}
}

// notRun is the report of a scenario that could not be run, for two reasons.
func notRun(scenario string) results.Report {
	why := errors.Join(errors.New("filter is unavailable: operation not permitted"), errors.New("hold is unavailable: operation not permitted"))
	return results.Report{Scenario: scenario, Verdict: results.Unknown, Reasons: []string{"it was not run: " + why.Error()}}
}

func TestMatrix(t *testing.T) {
	failed := healthyRun(t).report
	passed := failed
	passed.Verdict = results.Pass
	rs := []results.Report{pausedRun(t, false).report, pausedRun(t, true).report, passed, failed, passed, restartRun(t).report, notRun("late-packet-etcd")}
	var b bytes.Buffer
	must(t, Matrix(&b, rs))
	golden(t, "matrix.txt", b.Bytes())
	if !strings.Contains(b.String(), "2 of 3 PASS, 1 FAIL\n") {
		t.Error("no count of the repeats")
	}
}
