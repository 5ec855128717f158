package results

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// TestTheWorstVerdictWins goes through all pairs.
func TestTheWorstVerdictWins(t *testing.T) {
	order := []Verdict{Pass, Unknown, Fail}
	for i, a := range order {
		for j, b := range order {
			if got := worse(a, b); got != order[max(i, j)] {
				t.Errorf("of %s and %s, %s is the worse", a, b, got)
			}
		}
	}
}

// TestDropsAreCounted, up to the largest number.
func TestDropsAreCounted(t *testing.T) {
	var c tally
	for i, want := range []int64{3, 3, math.MaxInt64 - 1, math.MaxInt64} {
		if c.observe(&history.Event{Kind: history.Dropped, Value: []int64{3, -5, math.MaxInt64 - 4, 9}[i]}); c.dropped != want {
			t.Errorf("%d dropped, want %d", c.dropped, want)
		}
	}
}

// TestVerdictWithoutARun: a run by steps demands one grant, another run demands many.
func TestVerdictWithoutARun(t *testing.T) {
	for steps, uses := range map[int]string{0: "", 1: "", 2: "counter"} {
		s := scenarios.Scenario{Name: "x", Steps: make([]scenarios.Step, steps)}
		s.Workload.Use = uses
		r := NotRun(nil, s, "docker", "no engine")
		asked := slices.IndexFunc(r.Expectations, func(e ExpectationResult) bool { return e.Name == scenarios.Judged && e.Want == ">=1" })
		if r.Verdict != Unknown || r.Provider != "docker" || (asked >= 0) != (steps == 1) {
			t.Errorf("%d steps beside %q: %+v", steps, uses, r)
		}
	}
}

// TestDefaultExpectations: a scenario without expectations gets the defaults; its own expectations replace them.
func TestDefaultExpectations(t *testing.T) {
	text := func(list []scenarios.Expectation) string {
		var out []string
		for _, x := range list {
			out = append(out, fmt.Sprintf("%s %s%g %q %t", x.Name, x.Op, x.Value, x.Text, x.Forced))
		}
		return strings.Join(out, ", ")
	}
	zeros := `double_grants =0 "0" true, token_regressions =0 "0" true, foreign_releases =0 "0" true, `
	if got, want := text(withDefaults(nil, Env{})), zeros+`judged >=100 ">=100" true`; got != want {
		t.Errorf("a schedule must meet %s, want %s", got, want)
	}
	if got, want := text(withDefaults(nil, Env{Directed: true})), zeros+`judged >=1 ">=1" true`; got != want {
		t.Errorf("a directed run must meet %s, want %s", got, want)
	}
	named := []scenarios.Expectation{{Name: "foreign_releases", Op: ">", Text: ">0"}, {Name: "judged", Op: ">=", Value: 7, Text: ">=7"}}
	got := text(withDefaults(named, Env{}))
	if want := `foreign_releases >0 ">0" false, judged >=7 ">=7" false, double_grants =0 "0" true, token_regressions =0 "0" true`; got != want {
		t.Errorf("it must meet %s, want %s", got, want)
	}
	got = text(withDefaults(named, Env{MustBeZero: []string{"lost_updates", "foreign_releases"}}))
	if want := `foreign_releases >0 ">0" false, judged >=7 ">=7" false, lost_updates =0 "0" true`; got != want {
		t.Errorf("by the defaults that the run recorded it must meet %s, want %s", got, want)
	}
	if len(named) != 2 {
		t.Error("the scenario's own list was changed")
	}
}

// TestTheStrengthOfAZero: the rule of three applies to zeros only, from a hundred chances on.
func TestTheStrengthOfAZero(t *testing.T) {
	zero := scenarios.Expectation{Name: "double_grants", Op: "=", Text: "0"}
	atLeast := scenarios.Expectation{Name: "double_grants", Op: ">=", Text: ">=0"}
	for _, c := range []struct {
		found, chances int64
		bit, made      int
		x              scenarios.Expectation
		want           string
	}{
		{0, 99, 0, 0, zero, "0 double grants in 99 grants: too few to bound a rate"},
		{0, 100, 0, 0, zero, "0 double grants in 100 grants: the rate is below 3/100 = 3 % with 95 % confidence"},
		{0, 3000, 2, 2, atLeast, "0 double grants in 3,000 grants: the rate is below 3/3,000 = 0.1 % with 95 % confidence"},
		{0, 300, 1, 4, zero, "0 double grants in 300 grants: the rate is below 3/300 = 1 % with 95 % confidence; bit 1 of 4"},
		{1, 300, 0, 0, atLeast, ""},
		{0, 300, 0, 0, scenarios.Expectation{Name: "double_grants", Op: ">", Text: ">0"}, ""},
		{0, 300, 0, 0, scenarios.Expectation{Name: "stale_writes", Op: "=", Text: "0"}, ""},
	} {
		f := &Finding{Chances: map[string]Chances{"double_grants": {c.chances, "grants"}}}
		ct := &circumstances{
			report: &Report{Counts: map[string]*int64{"double_grants": new(c.found)}}, finding: map[string]*Finding{"double_grants": f}, bit: c.bit, made: c.made,
		}
		if got := ct.strength(c.x); got != c.want {
			t.Errorf("%d in %d: %q, want %q", c.found, c.chances, got, c.want)
		}
	}
}

// TestReasonsPerCause: each failure has a line, expectations left open by one cause share a line, and those left
// open by the whole run have none.
func TestReasonsPerCause(t *testing.T) {
	got := reasons([]ExpectationResult{
		{Name: "a", Want: "0", Verdict: Fail, Reason: "found 1"},
		{Name: "b", Want: "0", Verdict: Pass},
		{Name: "c", Want: "0", Verdict: Unknown, Reason: runUnknown},
		{Name: "d", Want: ">0", Verdict: Unknown, Reason: found(0) + but + runUnknown},
		{Name: "e", Want: "0", Verdict: Unknown, Reason: "it is dark"},
		{Name: "f", Want: "0", Verdict: Unknown, Reason: found(2) + but + "it is dark"},
	})
	if want := []string{"a 0: found 1", "e 0, f 0 (found 2): it is dark"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestVerdictOfACount checks in this order: whether the finding may have another explanation, whether nothing bit,
// whether it meets the expectation.
func TestVerdictOfACount(t *testing.T) {
	const blind, all, ends = "pause did not bite", "all", "ends"
	quantities := map[string]Quantity{all: {NeedsAll: true}, ends: {NeedsEnds: true}}
	for _, c := range []struct {
		name, count, op string
		value, found    float64
		lost, dropped   int
		weak            string // "blind": nothing bit; "few": too little was judged; "still": a process stood still
		want            Verdict
		why             string
	}{
		{"found", all, ">", 0, 1, 0, 0, "", Pass, ""},
		{"found, and a process is lost", all, ">", 0, 1, 1, 0, "", Unknown, "found 1, but its cause may be among the missing events"},
		{"found, and what was lost explains nothing", ends, ">", 0, 1, 1, 0, "", Pass, ""},
		{"nothing was found, and a process is lost", all, "=", 0, 0, 1, 0, "", Pass, ""},
		{"found, and events were dropped", all, ">", 0, 1, 0, 1, "", Unknown, "found 1, but the end of a hold may be among the dropped events"},
		{"found, and ends were dropped", ends, ">", 0, 1, 0, 1, "", Unknown, "found 1, but the end of a hold may be among the dropped events"},
		{"found, and what was dropped ends nothing", "other", ">", 0, 1, 0, 1, "", Pass, ""},
		{"nothing was found, and events were dropped", ends, "=", 0, 0, 0, 1, "", Pass, ""},
		{"nothing was found where nothing bit", "other", "=", 0, 0, 0, 0, "blind", Unknown, blind},
		{"nothing was found of what was demanded, where nothing bit", "other", ">", 0, 0, 0, 0, "blind", Unknown, "found 0, but " + blind},
		{"nothing was found of what was demanded", "other", ">", 0, 0, 0, 0, "", Fail, "found 0"},
		{"too few to find what was demanded", "other", ">", 0, 0, 0, 0, "few", Unknown, "found 0, but few"},
		{"fewer than were demanded, of too few", "other", ">=", 3, 2, 0, 0, "few", Unknown, "found 2, but few"},
		{"nothing was found of what was demanded in a run that stood still", "other", ">", 0, 0, 0, 0, "still", Unknown, "found 0, but still"},
		{"what is forbidden was found among too few", "other", "=", 0, 2, 0, 0, "few", Fail, "found 2"},
		{"found where nothing bit", "other", "=", 0, 2, 0, 0, "blind", Fail, "found 2"},
		{"fewer than were demanded", "other", "=", 3, 2, 0, 0, "blind", Unknown, "found 2, but " + blind},
		{"more than were demanded", "other", "=", 3, 4, 0, 0, "blind", Fail, "found 4"},
	} {
		x := circumstances{report: &Report{}, finding: map[string]*Finding{}, quantity: quantities, dropped: int64(c.dropped), run: Run{Lost: make([]Lost, c.lost)}}
		switch c.weak {
		case "blind":
			x.blind, x.weak = []string{blind}, []string{blind}
		case "few":
			x.few = "few"
		case "still":
			x.weak = []string{"still"}
		}
		got, why := x.counted(scenarios.Expectation{Name: c.count, Op: c.op, Value: c.value}, c.found)
		if got != c.want || why != c.why {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got, why, c.want, c.why)
		}
	}
}

// TestVerdictOfAMeasure: a time that is too long only because a process stood still proves nothing. Nor does a
// figure that is too small in a run that could not have shown a larger one.
func TestVerdictOfAMeasure(t *testing.T) {
	for _, c := range []struct {
		name, measure, op string
		value, found      float64
		weak              bool
		want              Verdict
		why               string
	}{
		{"short enough", "wait_ms", "<", 100, 99, false, Pass, ""},
		{"too long", "wait_ms", "<", 100, 151, false, Fail, "measured 151"},
		{"too long by the standstill", "wait_ms", "<", 100, 149, false, Unknown, "measured 149, but "},
		{"none is allowed, and it is less than the standstill", "wait_ms", "=", 0, 20, false, Unknown, "measured 20, but "},
		{"none is allowed, and it is more", "wait_ms", "=", 0, 51, false, Fail, "measured 51"},
		{"too short for an equality", "wait_ms", "=", 200, 149, false, Fail, "measured 149"},
		{"no time", "share", "<", 100, 149, false, Fail, "measured 149"},
		{"too short", "wait_ms", ">", 200, 149, false, Fail, "measured 149"},
		{"too short at least", "wait_ms", ">=", 200, 149, false, Fail, "measured 149"},
		{"too small in a weak run", "share", ">", 5, 1, true, Unknown, "measured 1, but few"},
		{"too small at least in a weak run", "share", ">=", 5, 1, true, Unknown, "measured 1, but few"},
		{"another in a weak run", "share", "=", 5, 1, true, Unknown, "measured 1, but few"},
		{"too large in a weak run", "share", "<", 5, 9, true, Fail, "measured 9"},
		{"too large a share of too few", "share_of_too_few", "<", 5, 9, false, Unknown, "measured 9, but few"},
		{"too long a time of too few", "wait_of_too_few_ms", "<", 100, 151, false, Fail, "measured 151"},
	} {
		x := circumstances{report: &Report{}, finding: map[string]*Finding{}, stood: Standstill{Process: "client-1", Total: 50e6}}
		if c.weak {
			x.weak = []string{"few"}
		}
		if strings.Contains(c.measure, "too") {
			x.few = "few"
		}
		got, why := x.measured(scenarios.Expectation{Name: c.measure, Op: c.op, Value: c.value}, c.found)
		if got != c.want || !strings.HasPrefix(why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got, why, c.want, c.why)
		}
	}
}

// TestStandstillsInsideATime: standstills excuse a time that is too long only as far as they lie in that time.
func TestStandstillsInsideATime(t *testing.T) {
	const ms = 1e6
	run := Run{End: 10_000 * ms}
	run.Still = NewStandstills(run)
	stall := func(process string, from, until int64) {
		run.Still.Observe(process, &history.Event{Kind: history.Stall, Time: until * ms, Value: (until - from) * ms})
	}
	stall("client-1", 1000, 1030)
	stall("client-2", 1020, 1050) // for 50 ms some process stood still
	stall("client-1", 1100, 1120)
	stall("client-1", 5000, 5070)
	for _, c := range []struct {
		name, checker string
		span          *Interval
		found         float64
		want          Verdict
		why           string
	}{
		{"of one time, where they are in it", "unfairness", &Interval{900 * ms, 1069 * ms}, 169, Fail, "measured 169"},
		{"just enough of them", "unfairness", &Interval{900 * ms, 1049 * ms}, 149, Unknown, "measured 149, but client-1 did not run for 30.000 ms, from 1000.000 ms on"},
		{"a time without any", "unfairness", &Interval{2000 * ms, 2101 * ms}, 101, Fail, "measured 101"},
		{"of a latency, as many as any time of its length has", "latency", nil, 169, Unknown, "measured 169, but client-1"},
		{"and no more than that", "latency", nil, 171, Fail, "measured 171"},
		{"of a sum of times, all of the run", "another", nil, 199, Unknown, "measured 199, but client-1 did not run for 120.000 ms"},
		{"and no more than that, either", "another", nil, 221, Fail, "measured 221"},
	} {
		f := &Finding{Checker: c.checker}
		if c.span != nil {
			f.Spans = map[string][]Span{"wait_ms": {c.span.Span()}}
		}
		x := circumstances{report: &Report{}, finding: map[string]*Finding{"wait_ms": f}, run: run, stood: run.Still.Worst(0, run.End)}
		got, why := x.measured(scenarios.Expectation{Name: "wait_ms", Op: "<", Value: 100.5}, c.found)
		if got != c.want || !strings.HasPrefix(why, c.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got, why, c.want, c.why)
		}
	}
}

// TestStandstillsOfAQueue: many short standstills excuse a wait in which others were granted the lock, but not a wait
// for one hand-over.
func TestStandstillsOfAQueue(t *testing.T) {
	const ms = 1e6
	run := Run{End: 10_000 * ms}
	run.Still = NewStandstills(run)
	for i := range int64(20) {
		run.Still.Observe("client-1", &history.Event{Kind: history.Stall, Time: (1020 + 25*i) * ms, Value: 20 * ms})
	}
	for queued, want := range map[bool]Verdict{true: Unknown, false: Fail} {
		span := Span{Interval{1000 * ms, 1500 * ms}, 500 * ms, queued}
		f := &Finding{Checker: "another", Spans: map[string][]Span{"wait_ms": {span}}}
		x := circumstances{report: &Report{}, finding: map[string]*Finding{"wait_ms": f}, run: run}
		if got, why := x.measured(scenarios.Expectation{Name: "wait_ms", Op: "<", Value: 150}, 500); got != want {
			t.Errorf("queued %v: %s (%s), want %s", queued, got, why, want)
		}
	}
}

// TestReasonOfAnUnjudgedCount: a finding without warnings gives no reason.
func TestReasonOfAnUnjudgedCount(t *testing.T) {
	c := circumstances{finding: map[string]*Finding{"mute": {}, "skipped": {Skipped: "no tokens"}, "warned": {Warnings: []string{"it is dark"}}}}
	for name, want := range map[string]string{
		"mute": "it was not judged", "skipped": "it was not judged: no tokens", "warned": "it was not judged: it is dark", "none": "there is no such count or measure",
	} {
		if got := c.notJudged(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestADefaultDoesNotApply: a default does not apply if its property was skipped or is missing in the run; violations
// found anyway are judged.
func TestADefaultDoesNotApply(t *testing.T) {
	forced := scenarios.Expectation{Name: "double_grants", Op: "=", Forced: true}
	c := circumstances{report: &Report{}, finding: map[string]*Finding{forced.Name: {Skipped: "no tokens"}}}
	if _, applies := c.judge(forced); applies {
		t.Error("it applies where it was skipped")
	}
	c.finding[forced.Name] = &Finding{}
	if _, applies := c.judge(forced); applies {
		t.Error("it applies where nothing was counted, for no reason")
	}
	free := scenarios.Expectation{Name: forced.Name, Op: ">="}
	if _, applies := c.judge(free); applies {
		t.Error("what may be anything applies where nothing was counted")
	}
	if _, applies := c.judge(scenarios.Expectation{Name: forced.Name, Op: "="}); !applies {
		t.Error("what the scenario demands does not apply")
	}
	c.finding[forced.Name] = &Finding{Warnings: []string{"it is dark"}}
	if res, applies := c.judge(forced); !applies || res.Verdict != Unknown {
		t.Errorf("it could not be judged: %+v, %t", res, applies)
	}
	c.report.Counts = map[string]*int64{forced.Name: new(int64(1))}
	if res, applies := c.judge(forced); !applies || res.Verdict != Fail {
		t.Errorf("one was found: %+v, %t", res, applies)
	}
}

// TestClientsAreGrouped: each program is named once, with its nodes; lockquake's own resource is left out.
func TestClientsAreGrouped(t *testing.T) {
	own := Client{Process: "lockquake client", Software: "1", Libraries: map[string]string{"m": "v1"}}
	newer, library := own, own
	newer.Software, library.Libraries = "2", map[string]string{"m": "v2"}
	other := Client{Process: "mine", Foreign: true}
	got := clients(Env{ResourceNodes: []string{"register", "replica"}, Clients: []ClientStats{
		{Name: "client-1", Client: own},
		{Name: "client-2", Client: other},
		{Name: "client-3", Client: own},
		{Name: "client-4", Client: newer},
		{Name: "client-5", Client: library},
		{Name: "register", Client: Client{Process: "lockquake register"}},
		{Name: "replica", Client: Client{Process: "yours", Foreign: true}},
	}})
	want := []ReportClient{
		{Nodes: []string{"client-1", "client-3"}, Client: own},
		{Nodes: []string{"client-2"}, Client: other},
		{Nodes: []string{"client-4"}, Client: newer},
		{Nodes: []string{"client-5"}, Client: library},
		{Nodes: []string{"replica"}, Client: Client{Process: "yours", Foreign: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("judged were %+v, should be %+v", got, want)
	}
}

// TestHarmIsExcusedCompletelyOrNot: a standstill that explains one lock's violations excuses no count that contains
// more than was found by lock.
func TestHarmIsExcusedCompletelyOrNot(t *testing.T) {
	run := Run{Locks: []string{"lock-0", "lock-1", "lock-2"}}
	l := NewLedger()
	l.Add(run, 0, 1, Standstill{Process: "client-1", Total: 5}, true)
	l.Add(run, 1, 1, Standstill{}, false)
	for _, c := range []struct{ count, under0, under1, under2, want int64 }{
		{3, 3, 0, 0, 3}, // all violations
		{7, 3, 0, 0, 7}, // a figure that depends on it alone
		{5, 3, 2, 0, 3}, // a part of what was found by lock
		{7, 3, 2, 0, 0}, // more than was found by lock: unknown
		{2, 0, 2, 0, 0}, // nothing
		{4, 0, 0, 4, 0}, // nothing: that lock has no known violation
	} {
		harm := Finding{Counts: map[string]*int64{"harm": new(c.count)}}
		harm.Found(0, c.under0)
		harm.Found(1, c.under1)
		harm.Found(2, c.under2)
		fs := []Finding{{Ledger: l}, harm}
		excuseHarm(fs)
		if got := fs[1].Excused["harm"].N; got != c.want {
			t.Errorf("%d, %d, %d and %d of them under three locks: %d excused, want %d", c.count, c.under0, c.under1, c.under2, got, c.want)
		}
	}
}

// TestTheWorstClockOfTheReplicasCounts for their joint effects.
func TestTheWorstClockOfTheReplicasCounts(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, DirHistory), 0o750); err != nil {
		t.Fatal(err)
	}
	for name, off := range map[string]int64{"epoch-1": 5, "epoch-2": 9, "epoch-3": 3, "client-1": 50} {
		w, err := history.Create(filepath.Join(dir, DirHistory, name+".lqh"), history.Header{Process: name, Locks: []string{"lock-0"}, ErrorNS: off})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l, err := OpenLog(dir, Env{Resource: "epoch", Replicas: []string{"epoch-1", "epoch-2", "epoch-3"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.whole.ErrorNS != 9 {
		t.Errorf("it may be off by %d", l.whole.ErrorNS)
	}
}

// TestCausesFirst: of several violations the possible cause of the others comes first; expectations unmet for another
// reason come last.
func TestCausesFirst(t *testing.T) {
	c := circumstances{quantity: map[string]Quantity{
		"double_grants": {Explains: []string{"stale_writes", "lost_updates"}}, "foreign_releases": {Explains: []string{"double_grants", "stale_writes", "lost_updates"}},
	}}
	var names []string
	for _, x := range c.causesFirst([]ExpectationResult{
		{Name: "judged", Verdict: Unknown}, {Name: "lost_updates", Verdict: Fail}, {Name: "double_grants", Verdict: Fail}, {Name: "token_regressions", Verdict: Pass}, {Name: "foreign_releases", Verdict: Fail},
	}) {
		names = append(names, x.Name)
	}
	if got := strings.Join(names, " "); got != "foreign_releases double_grants lost_updates judged token_regressions" {
		t.Error(got)
	}
}
