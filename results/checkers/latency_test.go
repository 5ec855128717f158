package checkers

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// timed passes a history written by hand to the latency checker.
func timed(t *testing.T, text string) *latency {
	t.Helper()
	s, err := parseScript(text)
	if err != nil {
		t.Fatal(err)
	}
	c := newLatency(s.run).(*latency)
	holds := followed(s.run, c)
	for i := range s.events {
		holds.Observe(&s.events[i])
	}
	return c
}

// TestPhaseOfAnOperation: the first fault that stood while it lasted, else the stretch in which it began.
// Each phase has its start, its end and the number of its acquires.
func TestPhaseOfAnOperation(t *testing.T) {
	const (
		one   = "fault pause on=A at=100 until=200\n"
		two   = one + "fault kill on=B at=300 until=400\n"
		apart = one + "fault kill on=B at=200 until=300\n"
	)
	for _, c := range []struct {
		name, run string
		from, to  int
		want      string
	}{
		{"it ends as the fault begins", one, 50, 100, "before 0-100: 1, pause 1 100-200: 0, after pause 1 200-100000: 0"},
		{"it lasts into the fault", one, 50, 101, "before 0-100: 0, pause 1 100-200: 1, after pause 1 200-100000: 0"},
		{"it begins as the fault does", one, 100, 101, "before 0-100: 0, pause 1 100-200: 1, after pause 1 200-100000: 0"},
		{"it begins as the fault ends", one, 200, 201, "before 0-100: 0, pause 1 100-200: 0, after pause 1 200-100000: 1"},
		{"the fault never ends", "fault pause on=A at=100\n", 50, 150, "before 0-100: 0, pause 1 100-100000: 1"},
		{"it lasts into the second fault", two, 250, 350, "before 0-100: 0, pause 1 100-200: 0, after pause 1 200-300: 0, kill 2 300-400: 1, after kill 2 400-100000: 0"},
		{"it lasts through both", two, 50, 500, "before 0-100: 0, pause 1 100-200: 1, after pause 1 200-300: 0, kill 2 300-400: 0, after kill 2 400-100000: 0"},
		{"the second fault begins as the first ends", apart, 210, 220, "before 0-100: 0, pause 1 100-200: 0, after pause 1 200-200: 0, kill 2 200-300: 1, after kill 2 300-100000: 0"},
		{"times are told from when the workload was let go", "run start=20 end=1020\n" + one, 50, 60, "before 0-80: 1, pause 1 80-180: 0, after pause 1 180-1000: 0"},
		{"a run without an end ends with the last fault", "run end=0\n" + one, 50, 60, "before 0-100: 1, pause 1 100-200: 0, after pause 1 200-200: 0"},
	} {
		l := timed(t, c.run+fmt.Sprintf("%d A acquire invoke\n%d A acquire ok valid=9000\n", c.from, c.to))
		var got []string
		for _, p := range l.Phases() {
			got = append(got, fmt.Sprintf("%s %g-%g: %d", p.Name, p.FromMS, p.ToMS, p.Latency["acquire"].N))
		}
		if all := strings.Join(got, ", "); all != c.want {
			t.Errorf("%s: %s, want %s", c.name, all, c.want)
		}
	}
}

// TestLatencyLogsTellWhen: each line has the start and the length of its stretch, in seconds since the start of the
// workload.
func TestLatencyLogsTellWhen(t *testing.T) {
	l := timed(t, `
run start=1000 end=2000
fault pause on=B at=1100 until=1200
1010 A acquire invoke
1020 A acquire ok valid=9000
1050 A release invoke
1060 A release ok
1110 A acquire invoke
1120 A acquire ok valid=9000
1130 A release invoke
1140 A release ok
1250 A acquire invoke
1260 A acquire ok valid=9000
`)
	b, err := l.log(opAcquire, "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Split(line, ","); len(f) == 4 && !strings.Contains(line, "Start") {
			got = append(got, f[0]+" "+f[1])
		}
	}
	if want := []string{"0.000000 0.100000", "0.100000 0.100000", "0.200000 0.800000"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q of\n%s", got, want, b)
	}
	dated, err := l.log(opAcquire, "1970-01-01T00:01:05Z")
	if err != nil || !strings.Contains(string(dated), "#[StartTime: 65 (seconds") || strings.Contains(string(b), "StartTime:") {
		t.Errorf("%v; only a run whose start is known has it in its logs:\n%s\n%s", err, b, dated)
	}
}

// TestManyFaultsAreTimedCoarsely: up to 64 stretches with three digits, and 128 faults separately. A fault that
// begins with the run cuts nothing.
func TestManyFaultsAreTimedCoarsely(t *testing.T) {
	for n, want := range map[int]int{manyStretches: 3, manyStretches + 1: 2, mostPhased: 2, mostPhased + 1: 2} {
		var run results.Run
		for i := range n { // the first begins with the run; none ends
			run.Faults = append(run.Faults, history.Fault{ID: i + 1, Name: "pause", Start: int64(i), Traits: &history.Traits{}})
		}
		c := newLatency(run).(*latency)
		if warned := len(c.Finish().Warnings) > 0; c.digits != want || warned != (n > mostPhased) {
			t.Errorf("%d faults: %d digits, warned %t", n, c.digits, warned)
		}
	}
}

// TestJavasToolReadsLatencyLogs: HdrHistogram's own processor counts as many values, and finds the same maximum.
func TestJavasToolReadsLatencyLogs(t *testing.T) {
	const jar = "/usr/share/java/hdrhistogram.jar"
	java, err := exec.LookPath("java")
	if _, missing := os.Stat(jar); err != nil || missing != nil {
		t.Skipf("%v, %v: .ci/setup java installs both", err, missing)
	}
	var text strings.Builder
	text.WriteString("run start=1000 end=100000\nfault pause on=B at=20000 until=30000\n")
	for n := range 500 {
		at := 1010 + 100*n
		fmt.Fprintf(&text, "%d A acquire invoke\n%d A acquire ok valid=900000\n%d A release invoke\n%d A release ok\n", at, at+1+n%40, at+60, at+70)
	}
	b, err := timed(t, text.String()).log(opAcquire, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "acquire.hlog")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), java, "-cp", jar, "org.HdrHistogram.HistogramLogProcessor", "-i", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := regexp.MustCompile(`Max += +40\.\d+, Total count += +500\]`); !want.Match(out) {
		t.Errorf("it does not say %v:\n%s", want, out)
	}
}

// TestQuantilesAreMeasures: each quantile is a measure that a scenario can have an expectation on, in its order.
func TestQuantilesAreMeasures(t *testing.T) {
	var text strings.Builder
	for i := range 1000 { // the i-th acquire takes i ms
		at := i * 2000
		fmt.Fprintf(&text, "%d A acquire invoke\n%d A acquire ok valid=%d\n%d A release invoke\n%d A release ok\n", at, at+i+1, at+1900, at+i+2, at+i+3)
	}
	m := timed(t, text.String()).Finish().Measures
	for name, want := range map[string]float64{"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p999": 999, "max": 1000} {
		if got := m["acquire_"+name+"_ms"]; got == nil || math.Abs(*got-want) > want/500 {
			t.Errorf("acquire_%s_ms is %v, want %v", name, got, want)
		}
	}
}
