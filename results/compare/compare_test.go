package compare

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/lockquake/lockquake/results"
)

// TestFisher compares to values of R's fisher.test.
func TestFisher(t *testing.T) {
	for _, c := range []struct {
		k, n, l, m int
		want       float64
	}{{3, 4, 1, 4, 0.4857142857}, {0, 5, 5, 5, 0.0079365079}, {1, 10, 8, 10, 0.0054774946}, {0, 10, 1, 10, 1}, {0, 3, 0, 3, 1}} {
		if got := fisher(c.k, c.n, c.l, c.m); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d of %d and %d of %d: %.10f, want %.10f", c.k, c.n, c.l, c.m, got, c.want)
		}
	}
}

var quantities = []results.Quantity{
	{Name: "double_grants", First: 1, Tone: results.Violation},
	{Name: "throughput_per_s", First: 2, MoreIsBetter: true},
	{Name: "acquire_p99_ms"},
	{Name: "requests_per_grant"},
}

// known has a checker of these quantities.
var known = results.Checkers{{Counts: quantities[:1], Measures: quantities[1:]}}

// made returns runs with a figure each of double grants, throughput and p99.
func made(group string, rows ...[3]float64) []Run {
	var out []Run
	for i, row := range rows {
		grants := int64(row[0])
		out = append(out, Run{
			Dir: fmt.Sprintf("%s%d", group, i), text: "a scenario",
			Report: results.Report{
				Scenario: "s", Lock: "l", Verdict: results.Pass, Versions: map[string]string{"redis": group},
				Counts:   map[string]*int64{"double_grants": &grants},
				Measures: map[string]*float64{"throughput_per_s": &row[1], "acquire_p99_ms": &row[2], "requests_per_grant": nil},
			},
			Env: results.Env{Host: map[string]string{"cores": "2"}, Version: "v"},
		})
	}
	return out
}

func answers(t *testing.T, a, b []Run, demand string) Answer {
	t.Helper()
	r, err := Of(a, b, known, Allow{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDemands(demand, known, "")
	if err != nil {
		t.Fatal(err)
	}
	return r.Hold(d)[0]
}

// TestDemands compares runs that are better, worse, equal and too few.
func TestDemands(t *testing.T) {
	base := made("a", [3]float64{0, 100, 10}, [3]float64{0, 101, 11}, [3]float64{0, 102, 12}, [3]float64{0, 103, 13}, [3]float64{0, 104, 14})
	slow := made("b", [3]float64{0, 80, 20}, [3]float64{0, 81, 21}, [3]float64{0, 82, 22}, [3]float64{0, 83, 23}, [3]float64{1, 84, 24})
	border := made("d", [3]float64{0, 97, 10}, [3]float64{0, 98, 11}, [3]float64{0, 99, 12}, [3]float64{0, 99.5, 13}, [3]float64{0, 102.5, 14})
	violates := made("e", [3]float64{1, 100, 10}, [3]float64{2, 101, 11}, [3]float64{1, 102, 12}, [3]float64{3, 103, 13}, [3]float64{1, 104, 14})
	asked := func(runs []Run) (out []Run) {
		for _, r := range runs {
			two := 2.0
			r.Report.Measures = map[string]*float64{"requests_per_grant": &two}
			out = append(out, r)
		}
		return out
	}
	for _, c := range []struct {
		a, b   []Run
		demand string
		want   results.Verdict
	}{
		{base, slow, "throughput=5%", results.Fail},
		{base, slow, "throughput=50%", results.Pass},
		{slow, base, "throughput=5%", results.Pass},
		{base, slow, "p99=10%", results.Fail},
		{slow, base, "p99=10%", results.Pass},
		{base[:2], slow[:2], "p99=10%", results.Unknown},
		{base[:3], slow[:4], "p99=10%", results.Unknown},
		{base[:4], slow[:4], "p99=10%", results.Fail},
		{base, made("c", [3]float64{0, 100, 10}, [3]float64{0, 101, 11}, [3]float64{0, 102, 12}, [3]float64{0, 103, 13}, [3]float64{0, 104, 14}), "p99=0%", results.Pass},
		{base, border, "throughput=0%", results.Pass},   // p is 0.056
		{violates, base, "double_grants", results.Pass}, // significantly fewer
		{base, violates, "double_grants", results.Fail},
		{asked(base), base, "requests_per_grant=1%", results.Unknown}, // judged in the first group only
		{base, asked(base), "requests_per_grant=1%", results.Unknown},
		{base, slow, "double_grants", results.Fail}, // never before
		{slow, slow, "double_grants", results.Pass},
		{slow, base, "double_grants", results.Pass},
		{base, slow, "requests_per_grant=1%", results.Unknown},
	} {
		if got := answers(t, c.a, c.b, c.demand); got.Verdict != c.want || got.Reason == "" || got.Demand != c.demand {
			t.Errorf("%s to %s, %s: %+v, want %s", c.a[0].Dir, c.b[0].Dir, c.demand, got, c.want)
		}
	}
}

// TestDemandsThatMakeNoSense are refused with a suggestion.
func TestDemandsThatMakeNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"p98=10%": "list measures", "p99": "needs a bound, such as p99=10%", "p99=10": "it must be a percentage", "p99=-1%": "it must be a percentage",
		"double_grants=1%": "it takes no", "": "there is no count",
	} {
		if _, err := ParseDemands(text, known, "`lockquake list measures` lists them"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestDifferencesPreventComparison names the differences, and can be overruled.
func TestDifferencesPreventComparison(t *testing.T) {
	for want, change := range map[string]func(*Run){
		"cores: 2 and 4; --allow machine":           func(r *Run) { r.Env.Host = map[string]string{"cores": "4"} },
		"lock: l and other; --allow settings":       func(r *Run) { r.Report.Lock = "other" },
		"text of the scenario: a scenario and line": func(r *Run) { r.text = "line" },
		"text of the scenario; --allow settings":    func(r *Run) { r.text = "line\nline" },
	} {
		a, b := made("a", [3]float64{0, 1, 1}), made("b", [3]float64{0, 1, 1})
		change(&b[0])
		if _, err := Of(a, b, known, Allow{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		machine := strings.Contains(want, "--allow machine") // the text is cut short in one
		for _, allow := range []Allow{{Machine: true, Settings: true}, {Machine: true}, {Settings: true}} {
			ok := allow.Machine && machine || allow.Settings && !machine
			if _, err := Of(a, b, known, allow); (err == nil) != ok {
				t.Errorf("%s, with %+v: %v", want, allow, err)
			}
		}
	}
}

// TestText shows the values of both groups and the differences.
func TestText(t *testing.T) {
	a, b := made("a", [3]float64{0, 100, 10}, [3]float64{0, 101, 11}), made("b", [3]float64{2, 80, 20}, [3]float64{0, 81, 21})
	for _, c := range []struct {
		b    []Run
		want []string
	}{
		{b, []string{"A: 2 runs of s (, lock l, provider ): 2 pass", "redis: a in A, b in B", "double_grants     0, in 0 of 2 runs  1, in 1 of 2 runs", "too few runs", "an interval needs 6"}},
		{nil, []string{"A: 2 runs of s (, lock l, provider ): 2 pass", "throughput_per_s  100.5, n=2"}},
	} {
		r, err := Of(a, c.b, known, Allow{})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := r.Text(&out); err != nil {
			t.Fatal(err)
		}
		for _, text := range c.want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("no %q in\n%s", text, out.String())
			}
		}
	}
}

// TestBench: benchstat's reader can read it.
func TestBench(t *testing.T) {
	var out bytes.Buffer
	res, err := Of(made("a", [3]float64{0, 100, 10}), made("b", [3]float64{1, 80, 20}), known, Allow{})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Bench(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	r, n := benchfmt.NewReader(&out, "runs"), 0
	for r.Scan() {
		one, ok := r.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("%v in\n%s", r.Result(), text)
		}
		n++
		if v, ok := one.Value("acquire_p99_ms"); !ok || v != float64(10*n) || one.GetConfig("group") != string(rune('A'+n-1)) || one.Name.String() != "Run/scenario=s/lock=l" {
			t.Errorf("%v of %s in group %s", one.Values, one.Name, one.GetConfig("group"))
		}
	}
	if n != 2 || r.Err() != nil {
		t.Errorf("%d results, %v", n, r.Err())
	}
}
