package results

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// outcomes are the verdicts of the single expectations of a report, by name.
func outcomes(r Report) map[string]Verdict {
	out := map[string]Verdict{}
	for _, x := range r.Expectations {
		out[x.Name] = x.Verdict
	}
	return out
}

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

// TestWhatEveryRunMustMeet: a scenario that names nothing is held to the defaults, and what it names takes their place.
func TestWhatEveryRunMustMeet(t *testing.T) {
	text := func(list []scenarios.Expectation) string {
		var out []string
		for _, x := range list {
			out = append(out, fmt.Sprintf("%s %s%g %q %t", x.Name, x.Op, x.Value, x.Text, x.Forced))
		}
		return strings.Join(out, ", ")
	}
	zeros := `double_grants =0 "0" true, token_regressions =0 "0" true, foreign_releases =0 "0" true, `
	if got, want := text(withDefaults(nil, false)), zeros+`judged >=100 ">=100" true`; got != want {
		t.Errorf("a schedule must meet %s, want %s", got, want)
	}
	if got, want := text(withDefaults(nil, true)), zeros+`judged >=1 ">=1" true`; got != want {
		t.Errorf("a directed run must meet %s, want %s", got, want)
	}
	named := []scenarios.Expectation{{Name: "foreign_releases", Op: ">", Text: ">0"}, {Name: "judged", Op: ">=", Value: 7, Text: ">=7"}}
	got := text(withDefaults(named, false))
	if want := `foreign_releases >0 ">0" false, judged >=7 ">=7" false, double_grants =0 "0" true, token_regressions =0 "0" true`; got != want {
		t.Errorf("it must meet %s, want %s", got, want)
	}
	if len(named) != 2 {
		t.Error("the scenario's own list was changed")
	}
}

// TestEachExpectationByItself looks at single expectations where the run's verdict would hide them.
func TestEachExpectationByItself(t *testing.T) {
	free := `double_grants: ">=0", token_regressions: ">=0", foreign_releases: ">=0", judged: ">=1"`
	notInstalled := func(d *runDir) { d.script.run.Faults[0].Receipt.Status = history.NotInstalled }
	interrupted := func(d *runDir) { d.env.Interrupted = true }
	steps := func(d *runDir) {
		d.scenario = "name: x\nclaim: y\nbackend: {use: memory, ttl: 10s}\nsteps: [{do: acquire, user: A}, {inject: pause, on: A}]\nexpect: {judged: \">=1\"}\n"
		d.env.Directed = true
	}
	for _, c := range []struct {
		name, text, expect string
		change             func(*runDir)
		of                 string // the expectation that is looked at; "" is the run
		want               Verdict
		reason             string
	}{
		{"nothing is forbidden, and the run was interrupted", serialScript, free, interrupted, "", Unknown, "interrupted"},
		{"just as many as are forbidden, and nothing bit", overlapScript, `stale_writes: "<1", ` + free, notInstalled, "stale_writes", Fail, "stale_writes <1: found 1"},
		{"fewer than were demanded, and nothing bit", overlapScript, `stale_writes: "2", ` + free, notInstalled, "stale_writes", Unknown, "did not bite"},
		{"fewer than were demanded", overlapScript, `stale_writes: "2", ` + free, nil, "stale_writes", Fail, "found 1"},
		{"not found in a run that was interrupted", serialScript, `stale_writes: ">0", ` + free, interrupted, "stale_writes", Unknown, "interrupted"},
		{"found where too few grants were judged", overlapScript, `stale_writes: ">0", judged: ">=50"`, nil, "stale_writes", Pass, ""},
		{"found although nothing bit", overlapScript, `stale_writes: ">0", judged: ">=1"`, notInstalled, "stale_writes", Pass, ""},
		{"fewer than, after a stall", serialScript + "9000 A stall info issued=6000\n", `stale_writes: "<1", ` + free, nil, "stale_writes", Unknown, "did not run"},
		{"at most, after a stall", serialScript + "9000 A stall info issued=6000\n", `stale_writes: "<=0", ` + free, nil, "stale_writes", Unknown, "did not run"},
		{
			"a checker that does not know", strings.ReplaceAll(serialScript, "token=5", ""), `judged: ">=1"`, nil,
			"token_regressions", Unknown, "1 grants came without a token",
		},
		{"a lower bound, and nothing bit", overlapScript, `throughput_per_s: ">1000000", ` + free, notInstalled, "throughput_per_s", Unknown, "did not bite"},
		{"a lower bound", overlapScript, `throughput_per_s: ">1000000", ` + free, nil, "throughput_per_s", Fail, "measured"},
		{"a count is no duration", overlapScript, `stale_writes: "<1s", ` + free, nil, "stale_writes", Unknown, "it is no duration"},
		{"a share that is too small", overlapScript, `overlapping_holds: ">50%", ` + free, nil, "overlapping_holds", Fail, "found 50"},
		{
			"a double grant where a release may be missing", strings.Replace(overlapScript, "valid=110", "valid=900", 1) + "500 A dropped info value=3\n",
			`overlapping_holds: ">=0", stale_writes: ">=0", judged: ">=1"`, nil, "double_grants", Unknown, "what ended a hold",
		},
		{"a fault of a step was never injected", serialScript, "", steps, "", Unknown, "pause was never injected"},
		{"a schedule of which nothing was made", overlapScript, free, func(d *runDir) {
			d.script.run.Faults[0].Receipt.Status, d.script.run.Faults[0].Grant = history.NotMade, 0
		}, "", Unknown, "none of 1 injections was made"},
		{"all that were made bit", overlapScript, `bit: all, ` + free, func(d *runDir) {
			oneOfTwo(d)
			d.script.run.Faults[1].Receipt.Status = history.NotMade
		}, "", Pass, ""},
		{"harm that a standstill explains", `
run resource=register token=service increments
0 A acquire invoke
10 A acquire ok valid=191 issued=1 token=5
12 A read invoke
13 A read ok
20 B acquire invoke
200 B acquire ok valid=1220 issued=195 token=7
203 B write invoke value=1
204 B write ok value=1
300 A stall info issued=130
301 A write invoke value=1
302 A write ok value=1
310 A release invoke
325 A release ok
400 B release invoke
405 B release ok
500 A final info value=1
`, `lost_updates: "0", overlapping_holds: ">=0", ` + free, func(d *runDir) { d.env.Increments = true }, "lost_updates", Unknown, "stood still"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := judged(t, prepared(t, c.text, "expect: {"+c.expect+"}\n", c.change))
			got := r.Verdict
			if c.of != "" {
				got = outcomes(r)[c.of]
			}
			all := strings.Join(r.Reasons, "\n")
			if got != c.want || !strings.Contains(all, c.reason) {
				t.Errorf("%s, want %s with %q; reasons:\n%s", got, c.want, c.reason, all)
			}
			if strings.HasPrefix(c.reason, "none of") && strings.Contains(all, "did not bite") {
				t.Errorf("what was left out on purpose did not bite: %s", all)
			}
		})
	}
}

// TestTheStrengthOfAZero is the rule of three, for zeros alone and from a hundred chances on.
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
		{0, 3000, 2, 2, atLeast, "0 double grants in 3000 grants: the rate is below 3/3000 = 0.1 % with 95 % confidence"},
		{0, 300, 1, 4, zero, "0 double grants in 300 grants: the rate is below 3/300 = 1 % with 95 % confidence; bit 1 of 4"},
		{1, 300, 0, 0, atLeast, ""},
		{0, 300, 0, 0, scenarios.Expectation{Name: "double_grants", Op: ">", Text: ">0"}, ""},
		{0, 300, 0, 0, scenarios.Expectation{Name: "stale_writes", Op: "=", Text: "0"}, ""},
	} {
		f := &Finding{Chances: map[string]Chances{"double_grants": {c.chances, "grants"}}}
		ct := &court{
			report: &Report{Counts: map[string]*int64{"double_grants": count(c.found)}}, finding: map[string]*Finding{"double_grants": f}, bit: c.bit, made: c.made,
		}
		if got := ct.strength(c.x); got != c.want {
			t.Errorf("%d in %d: %q, want %q", c.found, c.chances, got, c.want)
		}
	}
}

// TestReceiptsAtTheirBorders: what happens at the very moment of the stop has happened while the target was still at work, and in hand.
func TestReceiptsAtTheirBorders(t *testing.T) {
	at := func(ms string) string { return strings.Replace(overlapScript, "at=20", "at="+ms, 1) }
	for _, c := range []struct {
		name, text string
		change     func(*history.Fault)
		want       history.ReceiptStatus
	}{
		{"granted at the moment of the stop", at("10"), nil, history.Installed},
		{"released at the moment of the stop", at("320"), nil, history.Installed},
		{"the release had begun, and was not answered", at("322"), nil, history.NotInstalled},
		{"released between the order and the stop", at("319"), func(f *history.Fault) { f.Bit = 321e6 }, history.NotInstalled},
		{"granted between the order and the stop", at("5"), func(f *history.Fault) { f.Bit = 11e6 }, history.Installed},
		{"no such grant", at("20"), func(f *history.Fault) { f.Grant = 99 }, history.NotInstalled},
		{"a receipt that knew it", at("400"), func(f *history.Fault) { f.Receipt.Status = history.Indeterminate }, history.Indeterminate},
		{"a fault that aimed at nobody's grant", at("400"), func(f *history.Fault) { f.Grant, f.User = 0, nil }, history.Installed},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := judged(t, prepared(t, c.text, enough, func(d *runDir) {
				if c.change != nil {
					c.change(&d.script.run.Faults[0])
				}
			}))
			if got := r.Faults[0].Receipt; got.Status != c.want {
				t.Errorf("receipt %+v, want %s", got, c.want)
			}
		})
	}
}

// TestWhatTheCheckersAreTold of faults: in the order of their start, those that never came to be without a duration, and none that was
// left out.
func TestWhatTheCheckersAreTold(t *testing.T) {
	text := overlapScript + "fault kill on=B at=200 until=210\n"
	phases := func(change func(*runDir)) string {
		r := judged(t, prepared(t, text, enough, change))
		var out []string
		for _, p := range r.Phases {
			out = append(out, fmt.Sprintf("%s %g-%g", p.Name, p.FromMS, p.ToMS))
		}
		return strings.Join(out, ", ")
	}
	if got, want := phases(nil), "before 0-20, pause 1 20-300, after pause 1 300-1000, kill 2 200-210, after kill 2 210-1000"; got != want {
		t.Errorf("phases %s, want %s", got, want)
	}
	if got, want := phases(func(d *runDir) { slices.Reverse(d.script.run.Faults) }), phases(nil); got != want {
		t.Errorf("written in another order, %s, want %s", got, want)
	}
	gone := func(status history.ReceiptStatus) func(*runDir) {
		return func(d *runDir) {
			f := &d.script.run.Faults[1]
			f.End, f.Receipt = 0, history.Receipt{Status: status, Time: 205e6}
		}
	}
	if got := phases(gone(history.NotInstalled)); !strings.Contains(got, "kill 2 200-205") {
		t.Errorf("one that did not come to be: %s", got)
	}
	if got := phases(gone(history.NotMade)); strings.Contains(got, "kill") {
		t.Errorf("one that was left out: %s", got)
	}
	for status, want := range map[history.ReceiptStatus]float64{history.NotInstalled: 200, history.NotMade: 200, history.Installed: 1000} {
		r := judged(t, prepared(t, text, enough, gone(status)))
		if f := r.Faults[1]; f.StartMS != 200 || f.EndMS != want {
			t.Errorf("%s: drawn from %g to %g", status, f.StartMS, f.EndMS)
		}
	}
}

// TestTheDeadHoldNothing: env.json tells who was killed.
func TestTheDeadHoldNothing(t *testing.T) {
	text := `
run resource=register
0 A acquire invoke
10 A acquire ok valid=5000 issued=1
20 B acquire invoke
120 B acquire ok valid=1220 issued=119
400 B release invoke
405 B release ok
`
	for dead, want := range map[bool]int64{true: 0, false: 1} {
		r := judged(t, prepared(t, text, enough, func(d *runDir) {
			d.env.Clients = []ClientStats{{Name: "client-1", Dead: dead, Recorded: 2}, {Name: "client-2", Recorded: 4}}
		}))
		if n := r.Counts["double_grants"]; n == nil || *n != want {
			t.Errorf("dead %t: %v double grants, want %d", dead, n, want)
		}
	}
}

// TestWhoIsEntitled counts the grants that were entitled as they came.
func TestWhoIsEntitled(t *testing.T) {
	text := `
run resource=register
0 A acquire invoke
10 A acquire ok valid=5 issued=1
20 A release invoke
25 A release ok
30 A acquire invoke
40 A acquire ok valid=unknown issued=31
50 A release invoke
55 A release ok
60 A acquire invoke
70 A acquire ok valid=endless issued=61
`
	if r := judged(t, prepared(t, text, enough, nil)); r.Judged.Grants != 3 || r.Judged.Entitled != 1 {
		t.Errorf("%+v", r.Judged)
	}
}

// TestLatenciesAtTheirBorders: which operations are timed, from when, and in which phase.
func TestLatenciesAtTheirBorders(t *testing.T) {
	r := judged(t, prepared(t, `
run resource=register
fault pause on=A at=100 until=200
50 A acquire invoke issued=10
60 A acquire ok valid=1000 issued=51
70 A release invoke
75 A release ok
80 B acquire invoke
90 B acquire ok valid=1000 issued=81
120 B lost info
130 A acquire invoke
150 A acquire ok valid=1000 issued=131
300 A release invoke
305 A release ok
`, enough, nil))
	near := func(q Quantiles, n int64, most float64) bool {
		return q.N == n && q.Max != nil && *q.Max > most*0.999 && *q.Max < most*1.001
	}
	if q := r.Latency["acquire"]; !near(q, 3, 50) {
		t.Errorf("an open loop's acquire is timed from its intended start: %+v", q)
	}
	if q := r.Latency["handoff"]; !near(q, 1, 20) {
		t.Errorf("one release was followed by a grant: %+v", q)
	}
	for i, want := range []int64{2, 1, 0} {
		if q := r.Phases[i].Latency["acquire"]; q.N != want {
			t.Errorf("%s: %d acquires, want %d", r.Phases[i].Name, q.N, want)
		}
	}
}

// TestWhatMakesNoSenseIsNotJudged names the file and the place.
func TestWhatMakesNoSenseIsNotJudged(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		change func(*runDir)
	}{
		"a grant that is not its acquire's": {"client-1.lqh: offset ", func(d *runDir) { d.script.events[1].Grant = 7 }},
		"an effect of a grant that nobody was given": {"register.lqh: offset ", func(d *runDir) {
			i := slices.IndexFunc(d.script.events, func(e history.Event) bool { return e.Kind == history.EffectWrite })
			d.script.events[i].Grant = 77
		}},
	} {
		r, err := Judge(prepared(t, overlapScript, enough, c.change).dir)
		if !errors.Is(err, history.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), c.file) || r.Verdict != Unknown {
			t.Errorf("%s: %s, %v", name, r.Verdict, err)
		}
	}
}

// TestTheWorstClockOfTheReplicasCounts for what they did together.
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
