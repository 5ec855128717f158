package checkers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// outcomes returns the verdicts of the single expectations of a report, by name.
func outcomes(r results.Report) map[string]results.Verdict {
	out := map[string]results.Verdict{}
	for _, x := range r.Expectations {
		out[x.Name] = x.Verdict
	}
	return out
}

// TestEachExpectationByItself checks single expectations that the run's verdict would hide.
func TestEachExpectationByItself(t *testing.T) {
	free := `double_grants: ">=0", token_regressions: ">=0", foreign_releases: ">=0", judged: ">=1"`
	notInstalled := func(d *runDir) { d.script.run.Faults[0].Receipt.Status = history.NotInstalled }
	interrupted := func(d *runDir) { d.env.Interrupted = true }
	steps := func(d *runDir) {
		d.scenario = "name: x\nclaim: y\nbackend: {use: memory, ttl: 10s}\nsteps: [{do: acquire, user: A}, {inject: pause, on: A}]\nexpect: {judged: \">=1\"}\n"
		d.env.Directed = true
	}
	expires := func(ttl int64, directed bool) func(*runDir) {
		return func(d *runDir) { d.env.Expires, d.env.TTL, d.env.Directed = true, ttl, directed }
	}
	for _, c := range []struct {
		name, text, expect string
		change             func(*runDir)
		of                 string // the expectation to check; "" is the run
		want               results.Verdict
		reason             string
	}{
		{"nothing is forbidden, and the run was interrupted", serialScript, free, interrupted, "", results.Unknown, "interrupted"},
		{"just as many as are forbidden, and nothing bit", overlapScript, `stale_writes: "<1", ` + free, notInstalled, "stale_writes", results.Fail, "stale_writes <1: found 1"},
		{"fewer than were demanded, and nothing bit", overlapScript, `stale_writes: "2", ` + free, notInstalled, "stale_writes", results.Unknown, "did not bite"},
		{"fewer than were demanded", overlapScript, `stale_writes: "2", ` + free, nil, "stale_writes", results.Fail, "found 1"},
		{"not found in a run that was interrupted", serialScript, `stale_writes: ">0", ` + free, interrupted, "stale_writes", results.Unknown, "interrupted"},
		{"found where too few grants were judged", overlapScript, `stale_writes: ">0", judged: ">=50"`, nil, "stale_writes", results.Pass, ""},
		{"none where too few grants were judged", serialScript, `stale_writes: "0", judged: ">=50"`, nil, "stale_writes", results.Unknown, "were judged"},
		{"found although nothing bit", overlapScript, `stale_writes: ">0", judged: ">=1"`, notInstalled, "stale_writes", results.Pass, ""},
		{"fewer than, after a stall", serialScript + "9000 A stall info issued=6000\n", `stale_writes: "<1", ` + free, nil, "stale_writes", results.Unknown, "did not run"},
		{"at most, after a stall", serialScript + "9000 A stall info issued=6000\n", `stale_writes: "<=0", ` + free, nil, "stale_writes", results.Unknown, "did not run"},
		{
			"a checker that does not know", strings.ReplaceAll(serialScript, "token=5", ""), `judged: ">=1"`, nil,
			"token_regressions", results.Unknown, "1 grant came without a token",
		},
		{"a lower bound, and nothing bit", overlapScript, `throughput_per_s: ">1000000", ` + free, notInstalled, "throughput_per_s", results.Unknown, "did not bite"},
		{"a lower bound", overlapScript, `throughput_per_s: ">1000000", ` + free, nil, "throughput_per_s", results.Fail, "measured"},
		{"a count is no duration", overlapScript, `stale_writes: "<1s", ` + free, nil, "stale_writes", results.Unknown, "it is no duration"},
		{"a share that is too small", overlapScript, `overlapping_holds: ">50%", ` + free, nil, "overlapping_holds", results.Fail, "found 50"},
		{
			"a double grant where a release may be missing", strings.Replace(overlapScript, "valid=110", "valid=900", 1) + "500 A dropped info value=3\n",
			`overlapping_holds: ">=0", stale_writes: ">=0", judged: ">=1"`, nil, "double_grants", results.Unknown, "the end of a hold",
		},
		{"a fault of a step was never injected", serialScript, "", steps, "", results.Unknown, "pause was never injected"},
		{"a schedule of which nothing was made", overlapScript, free, func(d *runDir) {
			d.script.run.Faults[0].Receipt.Status, d.script.run.Faults[0].Grant = history.NotMade, 0
		}, "", results.Unknown, "none of 1 injections was made"},
		{"all that were made bit", overlapScript, `bit: all, ` + free, func(d *runDir) {
			oneOfTwo(d)
			d.script.run.Faults[1].Receipt.Status = history.NotMade
		}, "", results.Pass, ""},
		{"a share of those that were made bit", overlapScript, `bit: ">=60%", ` + free, func(d *runDir) {
			oneOfTwo(d)
			d.script.run.Faults = append(d.script.run.Faults, d.script.run.Faults[0])
			d.script.run.Faults[2].ID = 3
		}, "bit", results.Pass, ""},
		{"a share of no grants", "run resource=register\n1 A acquire invoke\n", `double_grants: "<1%", judged: ">=1"`, nil, "double_grants", results.Unknown, "only 0 grants"},
		{"grants that were not entitled can be no double grants", unentitled.ReplaceAllString(serialScript, "valid=unknown"), `judged: ">=1"`, nil, "double_grants", results.Unknown, "were entitled"},
		{"half of the validities are a tenth of the ttl", serialScript, `judged: ">=1"`, expires(10e9, false), "double_grants", results.Pass, ""},
		{"more than half of them are less", serialScript, `judged: ">=1"`, expires(11e9, false), "double_grants", results.Unknown, "2 of the 2 entitled grants were valid for less than a tenth of the ttl"},
		{"... in a run by steps", serialScript, `judged: ">=1"`, expires(11e9, true), "double_grants", results.Pass, ""},
		{"... of a lock whose grants do not end by a ttl", serialScript, `judged: ">=1"`, func(d *runDir) { d.env.Expires, d.env.TTL = false, 11e9 }, "double_grants", results.Pass, ""},
		{"... which says nothing of other counts", unentitled.ReplaceAllString(serialScript, "valid=unknown"), `judged: ">=1"`, nil, "foreign_releases", results.Pass, ""},
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
`, `lost_updates: "0", overlapping_holds: ">=0", ` + free, func(d *runDir) { d.env.Increments = true }, "lost_updates", results.Unknown, "standstill"},
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

// TestReceiptsAtTheirBorders: an event at the very moment of the stop happened while the target still worked and held
// its grant.
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

// TestFaultsGivenToCheckers of faults: they get them in the order of their start, faults never installed without a
// duration, and no skipped ones.
func TestFaultsGivenToCheckers(t *testing.T) {
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

// TestTheDeadHoldNothing: env.json says which clients were killed.
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
			d.env.Clients = []results.ClientStats{{Name: "client-1", Dead: dead, Recorded: 2}, {Name: "client-2", Recorded: 4}}
		}))
		if n := r.Counts["double_grants"]; n == nil || *n != want {
			t.Errorf("dead %t: %v double grants, want %d", dead, n, want)
		}
	}
}

// TestEntitledGrantsAreCounted counts the grants that were entitled at their start.
func TestEntitledGrantsAreCounted(t *testing.T) {
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
50 A acquire invoke issued=5
60 A acquire ok valid=1000 issued=51
65 B acquire invoke issued=64
70 A release invoke
75 A release ok
90 B acquire ok valid=1000 issued=81
95 A acquire invoke
120 B lost info
145 A acquire ok valid=1000 issued=131
160 A release invoke
165 A release ok
166 B acquire invoke
170 B acquire ok valid=1000 issued=167
200 B release invoke
205 B release ok
`, enough, nil))
	near := func(q results.Quantiles, n int64, most float64) bool {
		return q.N == n && q.Max != nil && *q.Max > most*0.999 && *q.Max < most*1.001
	}
	if q := r.Latency["acquire"]; !near(q, 4, 55) {
		t.Errorf("an open loop's acquire is timed from its intended start: %+v", q)
	}
	if q := r.Latency["handoff"]; !near(q, 1, 20) {
		t.Errorf("one release was followed by a grant to somebody who waited: %+v", q)
	}
	// A's second acquire began before the fault and waited through it; B's second began during it.
	for i, want := range []int64{2, 2, 0} {
		if q := r.Phases[i].Latency["acquire"]; q.N != want {
			t.Errorf("%s: %d acquires, want %d", r.Phases[i].Name, q.N, want)
		}
	}
	if q := r.Phases[2].Latency["release"]; q.N != 1 {
		t.Errorf("a release begins as the fault ends: %d behind it, want 1", q.N)
	}
}

// TestInconsistentHistoryIsNotJudged names the file and the place.
func TestInconsistentHistoryIsNotJudged(t *testing.T) {
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
		r, err := results.Judge(prepared(t, overlapScript, enough, c.change).dir, All())
		if !errors.Is(err, history.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), c.file) || r.Verdict != results.Unknown {
			t.Errorf("%s: %s, %v", name, r.Verdict, err)
		}
	}
}
