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
	"github.com/lockquake/lockquake/results/terminal"
	"github.com/lockquake/lockquake/scenarios"
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
		must(t, Text(&b, s.report, terminal.Whole()))
		golden(t, name, b.Bytes())
		for _, line := range strings.Split(b.String(), "\n") {
			if n := len([]rune(line)); n > 100 {
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

// TestTextIsFolded: no line is longer than the terminal, except for paths and commands, and no word is broken.
func TestTextIsFolded(t *testing.T) {
	r := pausedRun(t, false).report
	r.Warnings = []string{"a warning of many words that goes on and on until it is longer than any terminal that somebody would read it at, and further"}
	for _, width := range []int{60, 80, 200} {
		for _, opts := range [][]terminal.Option{{terminal.Width(width)}, {terminal.Width(width), terminal.Whole()}} {
			var b, wide bytes.Buffer
			must(t, Text(&b, r, opts...))
			must(t, Text(&wide, r, append(opts, terminal.Width(1000))...))
			for line := range strings.Lines(b.String()) {
				if n := len([]rune(strings.TrimSpace(line))); n > width && !strings.HasPrefix(line, "run ") && !strings.HasPrefix(line, "again ") {
					t.Errorf("at %d a line has %d columns: %s", width, n, line)
				}
			}
			if have, want := len(strings.Fields(b.String())), len(strings.Fields(wide.String())); have != want {
				t.Errorf("at %d there are %d words, at 1000 %d", width, have, want)
			}
		}
	}
}

// TestAPassIsBrief has every scenario pass with every optional part of a run: 14 lines, and that of the directory.
func TestAPassIsBrief(t *testing.T) {
	all, err := scenarios.Load("*")
	must(t, err)
	paused := pausedRun(t, false).report
	for _, s := range all {
		r := paused
		r.Scenario, r.Claim, r.Drawn = s.Name, s.Claim, "lockquake run runs/x/drawn.yaml"
		r.Warnings = []string{"one", "two"}
		r.Faults = append(append(r.Faults, r.Faults...), r.Faults...)[:3]
		r.Expectations = nil
		for _, x := range s.Expect {
			r.Expectations = append(r.Expectations, results.ExpectationResult{Name: x.Name, Want: x.Text, Got: new(float64), Verdict: results.Pass})
		}
		var b bytes.Buffer
		must(t, Text(&b, r, terminal.Width(80)))
		if n := strings.Count(b.String(), "\n"); n > 14 {
			t.Errorf("%d lines:\n%s", n, b.String())
		}
		for _, want := range []string{s.Name + ": PASS\n", "\nmet     ", "\njudged  ", "\nfault", "2 warnings", "\nagain ", "\ndrawn "} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q:\n%s", want, b.String())
			}
		}
	}
}

// TestOneLineOfAFailure: each failure is shown once.
func TestOneLineOfAFailure(t *testing.T) {
	r := healthyRun(t).report
	for _, opts := range [][]terminal.Option{nil, {terminal.Whole()}} {
		var b bytes.Buffer
		must(t, Text(&b, r, opts...))
		if n := strings.Count(b.String(), "  ! throughput_per_s"); n != 1 || strings.Contains(b.String(), "too slow") {
			t.Errorf("what failed stands there %d times, or its reason twice:\n%s", n, b.String())
		}
	}
}

// TestGotIsRounded: figures are as short as useful, but rounding never changes the decision.
func TestGotIsRounded(t *testing.T) {
	for _, c := range []struct {
		want string
		got  float64
		text string
	}{
		{">500", 790.8816381188939, "790.9"},
		{">500", 499.9999, "499.9999"},
		{"<790.9", 790.8816381188939, "790.8816381188939"},
		{"<1s", 999.96, "999.96"},
		{"0", 0, "0"},
		{">=100", 1234, "1,234"},
	} {
		if text := got(results.ExpectationResult{Name: "unavailability_ms_max", Want: c.want, Got: &c.got}); text != c.text {
			t.Errorf("%v against %s is written %s, should be %s", c.got, c.want, text, c.text)
		}
	}
}

func TestTextColour(t *testing.T) {
	var plain, coloured bytes.Buffer
	r := healthyRun(t).report
	must(t, Text(&plain, r, terminal.Whole()))
	must(t, Text(&coloured, r, terminal.Whole(), terminal.Colour("\x1b")))
	if !strings.Contains(coloured.String(), "\x1b[1;31mFAIL\x1b[0m") {
		t.Error("a failure is not red")
	}
	bare := strings.NewReplacer("\x1b[1;31m", "", "\x1b[1;32m", "", "\x1b[1;33m", "", "\x1b[0m", "").Replace(coloured.String())
	if d := cmp.Diff(plain.String(), bare); d != "" {
		t.Errorf("colour changes more than colour:\n%s", d)
	}
}

// notRun returns the report of a scenario that could not be run, for two reasons.
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

// A killed server has a line in every text and on the page. The runs of a scenario are pooled below the table,
// without unknown ones.
func TestFailoversHaveALine(t *testing.T) {
	t.Parallel()
	run := pausedRun(t, false)
	r := run.report
	for range 10 {
		r.Failovers = append(r.Failovers, results.Failover{Held: 150})
	}
	for _, opts := range [][]terminal.Option{nil, {terminal.Whole()}} {
		var b bytes.Buffer
		must(t, Text(&b, r, opts...))
		if !strings.Contains(b.String(), "0 of 10 failovers had double grants") {
			t.Errorf("it is not told:\n%s", b.String())
		}
	}
	must(t, Write(run.dir, r))
	if html, err := os.ReadFile(filepath.Join(run.dir, results.FileReport)); err != nil || !strings.Contains(string(html), "0 of 10 failovers had double grants") {
		t.Errorf("the page does not tell it (%v)", err)
	}
	hit, unknown := r, r
	hit.Failovers = []results.Failover{{Held: 150, DoubleGrants: 75}}
	unknown.Verdict = results.Unknown
	var b bytes.Buffer
	must(t, Matrix(&b, []results.Report{r, hit, unknown}))
	if told := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(told, "1 of 11 failovers had double grants: 9.09 % (95 %: 0.230 to 41.3); one that had any, 75") {
		t.Errorf("the runs are not pooled:\n%s", b.String())
	}
}

// TestClocksHaveALine in every text and on the page, if there are several.
func TestClocksHaveALine(t *testing.T) {
	r := pausedRun(t, false).report
	for _, c := range []*results.ReportClocks{nil, {Compared: 3, MaxErrorMS: 0.612, UnsurePairs: ptr(int64(4)), ByResource: true}} {
		r.Clocks = c
		for _, opts := range [][]terminal.Option{nil, {terminal.Whole()}} {
			var b bytes.Buffer
			if err := Text(&b, r, opts...); err != nil {
				t.Fatal(err)
			}
			if told := strings.Contains(b.String(), "\nclocks  3 of the run's clocks"); told != (c != nil) {
				t.Errorf("it is told: %t\n%s", told, b.String())
			}
		}
		told := false
		for _, f := range environment(results.Env{}, r) {
			for _, p := range f.Pairs {
				told = told || c != nil && p.Value == c.Text() && f.Name == "Run"
			}
		}
		if told != (c != nil) {
			t.Errorf("on the page it is told: %t", told)
		}
	}
}

// TestALateFaultIsCalledLate instead of its receipt's answer, with its delay.
func TestALateFaultIsCalledLate(t *testing.T) {
	r := pausedRun(t, false).report
	r.Faults[0].Late = "bit 5.84 s late"
	var brief, whole, page bytes.Buffer
	must(t, Text(&brief, r))
	must(t, Text(&whole, r, terminal.Whole()))
	must(t, pageTemplate.Execute(&page, pageData{Report: r}))
	for what, wants := range map[*bytes.Buffer][]string{&brief: {", late\n"}, &whole: {", late\n", "late: it bit 5.84 s late"}, &page: {`badge late">late</span>`, "it bit 5.84 s late"}} {
		for _, want := range wants {
			if !strings.Contains(what.String(), want) {
				t.Errorf("no %q in %s", want, what)
			}
		}
	}
	for range 3 {
		r.Faults = append(r.Faults, pausedRun(t, false).report.Faults[0])
	}
	if got, want := injections(r.Faults), "4 injections: 3 installed, 1 late"; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
