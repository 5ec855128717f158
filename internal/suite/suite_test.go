package suite_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
)

// start is how long the servers of a topology take to start.
const start = 4 * time.Second

// plan makes the cells that a suite file asks for. The programs of its clients announce nothing but their names.
func plan(text string) ([]suite.Cell, error) {
	return planWith(text, func(s scenarios.Scenario) (hellos []*wire.Hello, err error) {
		for range s.Programs() {
			hellos = append(hellos, &wire.Hello{Process: "mine"})
		}
		return hellos, nil
	})
}

func planWith(text string, ask suite.Ask) ([]suite.Cell, error) {
	c, err := suite.ReadFile([]byte(text), "s.yaml")
	if err != nil {
		return nil, err
	}
	cells, err := suite.Plan(c, append(all.All(), external.Backend()), ask)
	suite.Fit(cells, c.Most, max(1, c.Repeat), c.Budget, start)
	return cells, err
}

// TestMistakes requires an error that says where and what, with the line and a caret.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"loks: []":                                                              `s.yaml:1:1: unknown key "loks"; did you mean "locks"?`,
		"name: x\nlocks: []":                                                    "s.yaml:2:8: locks: is empty",
		"locks: [{backend: redis, lok: a}]":                                     `s.yaml:1:26: locks.0: unknown key "lok"`,
		"locks: [{backend: reddis}]":                                            `s.yaml:1:8: locks: no such lock: there is no backend "reddis"`,
		"locks: [{backend: redis, lock: setny}]":                                `redis has no lock "setny"`,
		"locks: [{backend: redis}]\nbudget: 5":                                  "s.yaml:2:9: budget: ",
		"locks: [{backend: redis}]\nrepeat: -1":                                 "s.yaml:2:9: repeat: ",
		"locks: [{backend: redis}]\nrandom: {for: 3s}":                          "random: has no seeds",
		"locks: [{backend: redis}]\nstories: [contenton]":                       "s.yaml:2:10: stories: contenton: unknown scenario",
		"locks: [{backend: redis}]\nstories: [no.yaml]":                         "no.yaml",
		"locks: [{backend: redis, set: [workload.clints=3]}]":                   "workload.clints=3",
		"locks: [{backend: redis}, {backend: redis}]":                           "redis/set-px-lua has the story contention twice",
		"locks: [{backend: redis, client: {run: [x], dirs: y}}]\nstories: [a*]": `unknown key "dirs"`,
	} {
		_, err := plan(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
		if err != nil && strings.HasPrefix(want, "s.yaml:") && !strings.Contains(err.Error(), "^") {
			t.Errorf("%q: no caret: %v", text, err)
		}
	}
}

// names returns the cells as lock, story and state.
func names(cells []suite.Cell) string {
	var out []string
	for _, c := range cells {
		out = append(out, c.Lock+" "+c.Story+" "+string(c.State()))
	}
	return strings.Join(out, "\n")
}

func TestPlan(t *testing.T) {
	t.Parallel()
	cells, err := plan(`
locks:
  - {backend: redis, lock: setnx}
  - {backend: etcd}
  - {name: mine, backend: redis, client: {run: [./mine]}, stories: [contention]}
  - {backend: redis, client: {go: mine, with: [x.org/lib/v2@v2.0.0]}, stories: [contention]}
  - {backend: redis, client: {go: mine, with: [x.org/lib/v2@v2.1.0]}, stories: [contention]}
stories: [contention, late-release*, redis-holder-pause]
random: {seeds: [7]}
most: 2
`)
	if err != nil {
		t.Fatal(err)
	}
	want := `redis/setnx contention not run
redis/setnx late-release does not apply
redis/setnx late-release-before-delete does not apply
redis/setnx redis-holder-pause not run
redis/setnx random-7 not run
etcd/mutex contention not run
etcd/mutex late-release not run
etcd/mutex late-release-before-unlock not run
etcd/mutex redis-holder-pause does not apply
etcd/mutex random-7 not run
mine contention not run
mine random-7 not run
redis/set-px-lua by mine (lib@v2.0.0) contention not run
redis/set-px-lua by mine (lib@v2.0.0) random-7 not run
redis/set-px-lua by mine (lib@v2.1.0) contention not run
redis/set-px-lua by mine (lib@v2.1.0) random-7 not run`
	if got := names(cells); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for _, c := range cells {
		if beyond := c.Lock == "redis/setnx" && c.Story == "random-7" || c.Lock == "etcd/mutex" && c.Story == "late-release-before-unlock" ||
			c.Lock == "etcd/mutex" && c.Story == "random-7"; beyond != (c.NotRun != "") {
			t.Errorf("%s %s: not run for %q", c.Lock, c.Story, c.NotRun)
		}
		if c.State() == suite.NotRun && c.Lock == "mine" && (!c.Foreign || len(c.Scenario.Workload.Client.Run) != 1) {
			t.Errorf("%s: its client is %v", c.Story, c.Scenario.Workload.Client)
		}
	}
}

// TestBudget requires that stories that do not fit are reported, and that the first story of each lock comes before
// the second of any.
func TestBudget(t *testing.T) {
	t.Parallel()
	const text = "locks: [{backend: redis}, {backend: etcd}]\nstories: [contention, late-release, crash]"
	whole, err := plan(text)
	if err != nil {
		t.Fatal(err)
	}
	all := suite.Takes(whole, 2, start)
	for budget, left := range map[time.Duration]int{0: 0, all: 0, all - time.Second: 1, time.Second: 6} {
		cells, err := plan(text)
		if err != nil {
			t.Fatal(err)
		}
		suite.Fit(cells, 0, 2, budget, start)
		n := 0
		for _, c := range cells {
			if c.NotRun != "" {
				n++
			}
		}
		if n != left || budget > 0 && suite.Takes(cells, 2, start) > budget {
			t.Errorf("%v: %d are not run, want %d; the rest takes %v", budget, n, left, suite.Takes(cells, 2, start))
		}
	}
	cells, _ := plan(text)
	suite.Fit(cells, 0, 1, suite.Takes(cells[:1], 1, start)+suite.Takes(cells[3:4], 1, start), start)
	if cells[0].NotRun != "" || cells[3].NotRun != "" || cells[1].NotRun == "" {
		t.Errorf("the first stories do not come first: %+v", cells)
	}
}

// TestUsualBudget requires that only a suite without a size is bounded.
func TestUsualBudget(t *testing.T) {
	t.Parallel()
	const locks = "locks: [{backend: redis}]\n"
	for text, want := range map[string]time.Duration{
		locks:                          25 * time.Minute,
		locks + "repeat: 1":            25 * time.Minute,
		locks + "repeat: 2":            0,
		locks + "stories: [default]":   0,
		locks + "random: {seeds: [1]}": 0,
		"locks: [{backend: redis, stories: [quick]}]": 0,
	} {
		c, err := suite.ReadFile([]byte(text), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.UsualBudget(); got != want {
			t.Errorf("%q is bounded to %v, want %v", text, got, want)
		}
	}
}

func runs(verdicts ...results.Verdict) (out []suite.Run) {
	for _, v := range verdicts {
		r := suite.Run{Verdict: v, Took: 1500, Seed: 3}
		if v != results.Pass {
			r.Reasons, r.Dir = []string{"why " + string(v)}, "dir-"+string(v)
		}
		out = append(out, r)
	}
	return out
}

// sample returns a suite with a cell of each kind.
func sample() suite.Result {
	return suite.Result{Schema: suite.Schema, Origin: results.Origin{Version: "1", Started: "then"}, Repeat: 2, Cells: []suite.Cell{
		{Lock: "a/b", Story: "green", Runs: runs(results.Pass, results.Pass)},
		{Lock: "a/b", Story: "flaky", Runs: runs(results.Pass, results.Fail)},
		{Lock: "a/b", Story: "spoilt", Runs: runs(results.Unknown)},
		{Lock: "a/b", Story: "left", NotRun: "the budget of 1s"},
		{Lock: "a/c", Story: "green", Apart: "it has no | end"},
		{Lock: "a/c", Story: "flaky", Runs: runs(results.Fail)},
	}}
}

func TestText(t *testing.T) {
	t.Parallel()
	const want = `story   a/b          a/c
green   green 2 of 2  -
flaky   red 1 of 2   red
spoilt  unknown      -
left    not run      -

a/b, flaky: red 1 of 2: why fail
  dir-fail

a/b, spoilt: unknown: why unknown
  dir-unknown

a/b, left: not run: the budget of 1s

a/c, flaky: red: why fail
  dir-fail

1 green, 2 red, 1 unknown, 1 not run, 1 do not apply
`
	var out bytes.Buffer
	if err := sample().Text(&out); err != nil || strings.Join(strings.Fields(out.String()), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// forms writes a suite in every form.
func forms(t *testing.T, r suite.Result) (text, markdown, xml *bytes.Buffer) {
	t.Helper()
	text, markdown, xml = &bytes.Buffer{}, &bytes.Buffer{}, &bytes.Buffer{}
	if err := errors.Join(r.Text(text), r.Markdown(markdown), r.JUnit(xml, nil)); err != nil {
		t.Fatal(err)
	}
	return text, markdown, xml
}

// TestTooFewGrants requires that a green cell with fewer grants than its story is about says so, and what it is
// worth.
func TestTooFewGrants(t *testing.T) {
	t.Parallel()
	r := suite.Result{Cells: []suite.Cell{
		{Lock: "a/b", Story: "many", About: 10_000, Runs: []suite.Run{{Verdict: results.Pass, Grants: 10_000}, {Verdict: results.Pass, Grants: 500}}},
		{Lock: "a/c", Story: "many", About: 10_000, Runs: []suite.Run{{Verdict: results.Pass, Grants: 10_000}}},
		{Lock: "a/d", Story: "many", About: 10_000, Runs: []suite.Run{{Verdict: results.Fail, Grants: 500, Reasons: []string{"why", "and why"}}}},
	}}
	text, markdown, xml := forms(t, r)
	const worth = "500 grants were judged, but the story needs 10000: violations that need more grants were not seen, and those by chance are rarer than 3/500 with 95 % confidence"
	for _, c := range []struct {
		out  *bytes.Buffer
		want []string
	}{
		{text, []string{"green 2 of 2 of too few grants  green  red\n", "\na/b, many: green 2 of 2: " + worth + "\n", "a/d, many: red: why; and why\n", "2 green, 1 red"}},
		{markdown, []string{"| many | ✅ green 2 of 2 of too few grants | ✅ green | ❌ red |", "- **a/b, many**: green 2 of 2: " + worth}},
		{xml, []string{"<system-out><![CDATA[" + worth + "]]></system-out>"}},
	} {
		for _, want := range c.want {
			if strings.Count(c.out.String(), want) != 1 {
				t.Errorf("it does not say once %q:\n%s", want, c.out)
			}
		}
		if strings.Count(c.out.String(), worth) != 1 {
			t.Errorf("it says it of others:\n%s", c.out)
		}
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Cells[1].Story = "fla|ky"
	r.Cells[1].Runs[1].Reasons[0] = "found <b> | \n*x*"
	var out bytes.Buffer
	if err := r.Markdown(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| story | a/b | a/c |\n|---|---|---|\n| green | ✅ green 2 of 2 | - |\n", `| fla\|ky | ❌ red 1 of 2 | - |`,
		`- **a/b, fla\|ky**: red 1 of 2: found &lt;b> \|  \*x\*`, "⏳ not run", "❔ unknown",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, &out)
		}
	}
}

// TestJUnit reads back what was written. With a baseline, only cells that were green there can be failures.
func TestJUnit(t *testing.T) {
	t.Parallel()
	was := sample()
	was.Cells[1].Runs = runs(results.Pass, results.Pass) // a/b flaky: a regression
	for name, c := range map[string]struct {
		with              *suite.Comparison
		failures, skipped int
	}{
		"alone":           {nil, 2, 2},
		"with a baseline": {&suite.Comparison{Now: sample(), Baseline: was}, 1, 3},
	} {
		var out bytes.Buffer
		if err := sample().JUnit(&out, c.with); err != nil {
			t.Fatal(err)
		}
		var got junit.Testsuites
		if err := xml.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Suites) != 2 || got.Tests != 6 || got.Failures != c.failures || got.Errors != 1 || got.Skipped != c.skipped || got.Suites[0].Time != "7.500" {
			t.Errorf("%s: %d suites, %+v", name, len(got.Suites), got)
		}
		if f := got.Suites[0].Testcases[1].Failure; f == nil || f.Message != "red 1 of 2: why fail" || !strings.Contains(f.Data, "dir-fail") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestBaseline has cells that were green and are red, have no answer, or had no time. Others were red all along, or
// are new.
func TestBaseline(t *testing.T) {
	t.Parallel()
	was := sample()
	was.Cells[1].Runs = runs(results.Pass)
	was.Cells[2].Runs = runs(results.Pass)
	was.Cells[3].Runs = runs(results.Pass)
	was.Cells[4] = suite.Cell{Lock: "a/c", Story: "gone", Runs: runs(results.Pass)}
	x := suite.Comparison{Now: sample(), Baseline: was}
	if r, u := x.Regressions(); r != 1 || u != 1 {
		t.Errorf("%d regressions, %d without an answer", r, u)
	}
	var out bytes.Buffer
	if err := x.Text(&out); err != nil {
		t.Fatal(err)
	}
	const want = `
against the baseline of then, version 1:
  REGRESSION: a/b, flaky: red 1 of 2; it was green in the baseline
  no answer: a/b, spoilt: unknown; it was green in the baseline
  changed: a/b, left: not run, for the budget of 1s; it was green in the baseline
  no longer there: a/c, gone; it was green in the baseline
`
	if out.String() != want {
		t.Errorf("%s", &out)
	}
	now := sample()
	now.Cells[3].Missing = true
	if r, u := (&suite.Comparison{Now: now, Baseline: was}).Regressions(); r != 1 || u != 2 {
		t.Errorf("%d regressions, %d without an answer where this machine cannot run one of them", r, u)
	}
	was.Cells[1].Runs, was.Cells[2].Runs = runs(results.Unknown), runs(results.Fail)
	if r, u := (&suite.Comparison{Now: sample(), Baseline: was}).Regressions(); r != 0 || u != 0 {
		t.Errorf("%d regressions, %d without an answer of what was never green", r, u)
	}
}

// TestBaselineOfCosts: each run must cost more than every run of the baseline, by a ratio and by an amount.
func TestBaselineOfCosts(t *testing.T) {
	t.Parallel()
	with := func(name string, values ...float64) suite.Result {
		r := suite.Result{Cells: []suite.Cell{{Lock: "a/b", Story: "answers", Runs: runs(results.Pass)}}}
		r.Cells[0].Runs = nil
		for _, v := range values {
			x := runs(results.Pass)[0]
			x.Cost = map[string]float64{name: v}
			r.Cells[0].Runs = append(r.Cells[0].Runs, x)
		}
		return r
	}
	for _, name := range suite.Costs() {
		if !checkers.All().Has(name, nil) {
			t.Errorf("no checker has the measure %s", name)
		}
	}
	for _, c := range []struct {
		measure     string
		was, now    []float64
		regressions int
	}{
		{"requests_per_acquire", []float64{1}, []float64{2}, 1},
		{"requests_per_acquire", []float64{3}, []float64{4}, 1},
		{"requests_per_acquire", []float64{4}, []float64{5}, 0},
		{"requests_per_acquire", []float64{2}, []float64{1}, 0},
		{"requests_per_acquire", []float64{1, 2}, []float64{2, 3}, 0},
		{"requests_per_release", []float64{2}, []float64{3}, 1},
		{"connections_per_grant", []float64{0.01}, []float64{0.1}, 0},
		{"connections_per_grant", []float64{0.01}, []float64{1}, 1},
		{"requests_per_wait_s", []float64{70}, []float64{100}, 0},
		{"requests_per_wait_s", []float64{70}, []float64{200}, 1},
		{"handoff_p99_ms", []float64{1}, []float64{100}, 0},
	} {
		x := suite.Comparison{Now: with(c.measure, c.now...), Baseline: with(c.measure, c.was...)}
		if r, u := x.Regressions(); r != c.regressions || u != 0 {
			t.Errorf("%s of %v after %v: %d regressions, want %d", c.measure, c.now, c.was, r, c.regressions)
		}
		var out bytes.Buffer
		if err := x.Text(&out); err != nil || strings.Contains(out.String(), "REGRESSION: a/b, answers: green; ") != (c.regressions > 0) {
			t.Errorf("%v: %s", err, &out)
		}
	}
}

// TestReadBack: a written suite is read back, and finished runs take no more time.
func TestReadBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := sample().Write(dir); err != nil {
		t.Fatal(err)
	}
	old, err := suite.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	now := old.Cells
	for i := range now {
		now[i].NotRun, now[i].Estimate = "", 1000
	}
	if len(now[0].Runs) != 2 || len(now[2].Runs) != 1 || len(now[3].Runs) != 0 || now[4].Runs != nil {
		t.Errorf("%s", names(now))
	}
	// The remaining runs are one of spoilt, two of left, and one of a/c's flaky.
	if got := suite.Takes(now, 2, start); got != 4*time.Second+4*time.Second {
		t.Errorf("the rest takes %v", got)
	}
	if _, err := suite.Read(t.TempDir()); err == nil {
		t.Error("an empty directory is a suite")
	}
}

// TestGreenWithWarnings: a green cell says what trouble its story does not name, in every form.
func TestGreenWithWarnings(t *testing.T) {
	t.Parallel()
	held := results.Uncovered{"overlapping_holds": 2}
	r := suite.Result{Cells: []suite.Cell{
		{Lock: "a/b", Story: "s", Runs: []suite.Run{{Verdict: results.Pass, Uncovered: held}, {Verdict: results.Pass, Uncovered: held}}},
		{Lock: "a/c", Story: "s", Runs: []suite.Run{{Verdict: results.Pass}}},
		{Lock: "a/d", Story: "s", Runs: []suite.Run{{Verdict: results.Fail, Reasons: []string{"why"}, Uncovered: held}}},
	}}
	text, markdown, xml := forms(t, r)
	const worth = "also found, without an expectation in the story: overlapping_holds 4"
	for _, c := range []struct {
		out  *bytes.Buffer
		want string
	}{
		{text, "green 2 of 2, with warnings  green  red\n"},
		{text, "\na/b, s: green 2 of 2: " + worth + "\n"},
		{markdown, "| s | 🟡 green 2 of 2, with warnings | ✅ green | ❌ red |"},
		{markdown, "- **a/b, s**: green 2 of 2: " + worth},
		{xml, "<system-out><![CDATA[" + worth + "]]></system-out>"},
	} {
		if strings.Count(c.out.String(), c.want) != 1 || strings.Count(c.out.String(), worth) != 1 {
			t.Errorf("it does not say once %q:\n%s", c.want, c.out)
		}
	}
}

// TestDrawnFaultsMayNameCounts: a suite file's expectations of drawn faults add to the defaults of such a story, or
// replace them.
func TestDrawnFaultsMayNameCounts(t *testing.T) {
	t.Parallel()
	c, err := suite.ReadFile([]byte("locks: [{backend: redis}]\nrandom: {seeds: [1], expect: {lost_updates: \"0\", longest_wait_ms: <5s}}\n"), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cells, err := suite.Plan(c, all.All(), nil)
	if err != nil || len(cells) != 1 {
		t.Fatal(cells, err)
	}
	got := map[string]string{}
	for _, e := range cells[0].Scenario.Expect {
		got[e.Name] = e.Text
	}
	if got["lost_updates"] != "0" || got["longest_wait_ms"] != "<5s" || got["stale_writes"] != ">=0" || got["double_grants"] != "0" {
		t.Errorf("%v", got)
	}
}

// TestRunsGoOn: a suite without a journal is resumed from the runs in suite.json, and the result is unchanged. A run
// that broke is unknown, and a job that was not made is not a run.
func TestRunsGoOn(t *testing.T) {
	t.Parallel()
	old, now := sample(), sample()
	for i := range now.Cells {
		now.Cells[i].Runs = nil
	}
	now.Fill(old.Results())
	if !reflect.DeepEqual(now, old) {
		t.Errorf("%+v\n%+v", now, old)
	}
	now.Repeat = 3
	plan := suite.Runs{Result: &now, Options: make([]engine.Options, len(now.Cells)), Seed: func(n int) uint64 { return uint64(100 + n) }}
	done := old.Results()
	for range 3 * len(now.Cells) {
		j, ok := plan.Next(done)
		if !ok {
			break
		}
		r := campaign.Result{Job: j.Name, Seed: j.Seed, Verdict: results.Pass}
		if len(done)%2 == 0 {
			r.Verdict, r.Broke = "", "it broke"
		}
		done = append(done, r)
	}
	now.Fill(done)
	for i, c := range now.Cells {
		if c.Apart != "" || c.NotRun != "" {
			if len(c.Runs) != len(old.Cells[i].Runs) {
				t.Errorf("%s has %d runs", c.Name(), len(c.Runs))
			}
			continue
		}
		if len(c.Runs) != 3 || c.Runs[2].Seed != 102 {
			t.Errorf("%s: %+v", c.Name(), c.Runs)
		}
		for _, r := range c.Runs {
			if r.Verdict == "" {
				t.Errorf("%s: a run without a verdict: %+v", c.Name(), r)
			}
		}
	}
	last := now.Cells[0].Name()
	if j, ok := plan.Next([]campaign.Result{{Job: last, NotMade: "no engine"}}); !ok || j.Name == last {
		t.Errorf("%s is tried again: %q", last, j.Name)
	}
	now.Fill(append(done, campaign.Result{Job: last, NotMade: "no engine", Err: engine.MissingError{Text: "no engine"}}))
	if c := now.Cells[0]; len(c.Runs) != 3 || c.NotRun != "no engine" || !c.Missing {
		t.Errorf("%+v", c)
	}
}

// TestPropertiesAreTold: what runs show of a lock stands in every form. If runs of a cell differ, they are counted.
func TestPropertiesAreTold(t *testing.T) {
	t.Parallel()
	says := func(answer string) suite.Run {
		return suite.Run{Verdict: results.Pass, Properties: []results.Property{{Name: "renews for hung users", Answer: answer}}}
	}
	text, markdown, xml := forms(t, suite.Result{Cells: []suite.Cell{
		{Lock: "a/b", Story: "s", Runs: []suite.Run{says("yes"), says("yes")}},
		{Lock: "a/c", Story: "s", Runs: []suite.Run{says("yes"), says("no"), says("yes")}},
		{Lock: "a/d", Story: "s", Runs: []suite.Run{{Verdict: results.Pass}}},
	}})
	for _, c := range []struct {
		out  *bytes.Buffer
		want string
	}{
		{text, "\na/b: renews for hung users: yes\na/c: renews for hung users: no 1 of 3, yes 2 of 3\n"},
		{markdown, "- a/b: renews for hung users: yes\n- a/c: renews for hung users: no 1 of 3, yes 2 of 3\n"},
		{xml, `<property name="renews for hung users" value="yes"></property>`},
		{xml, `<property name="renews for hung users" value="no 1 of 3, yes 2 of 3"></property>`},
	} {
		if strings.Count(c.out.String(), c.want) != 1 {
			t.Errorf("it does not say once %q:\n%s", c.want, c.out)
		}
	}
}
