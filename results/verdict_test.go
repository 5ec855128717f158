package results

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestClientsAreGrouped names each program once, with its nodes; a resource of lockquake's own is none of those judged.
func TestClientsAreGrouped(t *testing.T) {
	own := Client{Process: "lockquake client", Libraries: map[string]string{"m": "v1"}}
	other := Client{Process: "mine", Foreign: true}
	got := clients(Env{ResourceNodes: []string{"register", "replica"}, Clients: []ClientStats{
		{Name: "client-1", Client: own},
		{Name: "client-2", Client: other},
		{Name: "client-3", Client: own},
		{Name: "register", Client: Client{Process: "lockquake register"}},
		{Name: "replica", Client: Client{Process: "yours", Foreign: true}},
	}})
	want := []ReportClient{
		{Nodes: []string{"client-1", "client-3"}, Client: own},
		{Nodes: []string{"client-2"}, Client: other},
		{Nodes: []string{"replica"}, Client: Client{Process: "yours", Foreign: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("judged were %+v, should be %+v", got, want)
	}
}

// unentitled is what a script says of the end of a validity.
var unentitled = regexp.MustCompile(`valid=[0-9]+`)

func TestVerdictLattice(t *testing.T) {
	demand := pauseOnHolder + "expect: {overlapping_holds: \">0\", stale_writes: \">0\", double_grants: \"0\", judged: \">=2\"}\n"
	notInstalled := func(d *runDir) {
		d.script.run.Faults[0].Receipt = history.Receipt{Status: history.NotInstalled, Evidence: "state R"}
	}
	ghost := func(d *runDir) {
		d.script.run.Faults = []history.Fault{{ID: 1, Name: "pause", Selector: "holder", Receipt: history.Receipt{Status: history.Installed}, Bit: 1, End: 2}}
	}
	for _, c := range []struct {
		name, text, expect string
		change             func(*runDir)
		want               Verdict
		reason             string // must be in the reasons
	}{
		{"a clean run", serialScript, enough, nil, Pass, ""},
		{"too few grants", serialScript, "", nil, Unknown, "2 grants were judged"},
		{"as many as asked for", serialScript, "expect: {judged: \">=2\"}\n", nil, Pass, ""},
		{"fewer than asked for", serialScript, "expect: {judged: \">=3\"}\n", nil, Unknown, "only 2 grants"},
		{"a demanded violation is found", overlapScript, demand, nil, Pass, ""},
		{
			"a demanded violation is found though the fault did not bite", overlapScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}]\nexpect: {overlapping_holds: \">0\", judged: \">=2\"}\n", notInstalled, Unknown, "did not bite",
		},
		{"a demanded violation is not found", serialScript, demand, ghost, Fail, "overlapping_holds >0: found 0"},
		{"... and the fault did not bite", serialScript, demand, func(d *runDir) { ghost(d); notInstalled(d) }, Unknown, "did not bite"},
		{
			"the fault did not bite, where anything would do", serialScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}]\n" +
				"expect: {double_grants: \">=0\", foreign_releases: \">=0\", token_regressions: \">=0\", judged: \">=1\"}\n",
			func(d *runDir) { ghost(d); notInstalled(d) }, Unknown, "did not bite",
		},
		{"... and the fault was never injected", serialScript, demand, nil, Unknown, "pause was never injected"},
		{"a forbidden violation is found", overlapScript, "expect: {stale_writes: \"0\", judged: \">=1\"}\n", nil, Fail, "stale_writes 0: found 1"},
		{"... whatever bit", overlapScript, "expect: {stale_writes: \"0\", judged: \">=1\"}\n", notInstalled, Fail, "found 1"},
		{"fail is worse than unknown", overlapScript, "expect: {stale_writes: \"0\"}\n", func(d *runDir) { d.env.Finished = false }, Fail, ""},
		{"more than allowed", overlapScript, "expect: {overlapping_holds: \"<1\", judged: \">=1\"}\n", nil, Fail, ""},
		{"cut short", serialScript, enough, func(d *runDir) { d.env.Finished = false }, Unknown, "cut short"},
		{"interrupted", serialScript, enough, func(d *runDir) { d.env.Interrupted = true }, Unknown, "interrupted"},
		{"not recovered", serialScript, enough, func(d *runDir) { d.env.Recovered = false }, Unknown, "serve again"},
		{"no final read", serialScript, enough, func(d *runDir) { d.env.FinalRead = false }, Unknown, "final read"},
		{"a step that was not met", serialScript, enough, func(d *runDir) { d.env.Unknown = []string{"step 3 was not met"} }, Unknown, "step 3"},
		{"dropped by its own word", serialScript, enough, func(d *runDir) { d.env.Clients = []ClientStats{{Name: "client-1", Recorded: 4, Dropped: 4}} }, Unknown, "4 events"},
		{"dropped", serialScript + "50 A dropped info value=3\n", enough, nil, Unknown, "3 events"},
		{
			"a demanded violation is found in a run that was interrupted", overlapScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n",
			func(d *runDir) { d.env.Interrupted = true }, Unknown, "interrupted",
		},
		{
			"a violation is found, but events were dropped", overlapScript + "500 A dropped info value=3\n",
			"expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", nil, Unknown, "overlapping_holds 0 (found 1): what ended a hold",
		},
		{
			"... which says nothing of a stale write", overlapScript + "500 A dropped info value=3\n",
			"expect: {stale_writes: \"0\", judged: \">=1\"}\n", nil, Fail, "stale_writes 0: found 1",
		},
		{
			"one of two entries of the same fault was never injected", overlapScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}, {use: pause, on: holder, at: 20ms, for: 1s}]\nexpect: {judged: \">=2\"}\n",
			func(d *runDir) { d.script.run.Faults[0].Entry = 1 }, Unknown, "pause was never injected (entry 2 of chaos)",
		},
		{
			"entries are told apart by their number", overlapScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}, {use: pause, on: holder, at: 20ms, for: 1s}]\nexpect: {judged: \">=2\"}\n",
			func(d *runDir) {
				f := d.script.run.Faults[0]
				d.script.run.Faults[0].Entry = 1
				f.ID, f.Entry, f.Receipt.Status = 2, 2, history.NotInstalled
				d.script.run.Faults = append(d.script.run.Faults, f)
			}, Unknown, "did not bite",
		},
		{"an own stall", serialScript + "9000 A stall info issued=6000\n", enough, nil, Unknown, "did not run"},
		{
			"an own stall before anybody could ask", serialScript + "9000 A stall info issued=6000\n", enough,
			func(d *runDir) { d.env.Start = 9e9 }, Pass, "",
		},
		{
			"an own stall whose end lies in the run", serialScript + "9000 A stall info issued=6000\n", enough,
			func(d *runDir) { d.env.Start = 35e8 }, Unknown, "from 0.000 ms to 5500.000 ms",
		},
		{"an expectation of what is not judged", serialScript, "expect: {lost_updates: \"0\", judged: \">=1\"}\n", nil, Unknown, "do not count up"},
		{"an expectation of what there is not", serialScript, "expect: {loose_screws: \"0\", judged: \">=1\"}\n", nil, Unknown, "no such count"},
		{"a default that does not apply", strings.ReplaceAll(serialScript, "token=service", "token=none"), enough, nil, Pass, ""},
		{"a measure that is met", serialScript, "expect: {longest_wait_ms: \"<1s\", throughput_per_s: \">1\", judged: \">=1\"}\n", nil, Pass, ""},
		{"a measure that is not met", serialScript, "expect: {longest_wait_ms: \"<5ms\", judged: \">=1\"}\n", nil, Fail, "measured 10"},
		{
			"a measure met in a run that was cut short", serialScript, "expect: {longest_wait_ms: \"<1s\", judged: \">=1\"}\n",
			func(d *runDir) { d.env.Interrupted = true }, Unknown, "interrupted",
		},
		{"a share of the grants", overlapScript, "expect: {overlapping_holds: \">=50%\", judged: \">=1\"}\n", nil, Pass, ""},
		{
			"what only a standstill explains", lateScript, "expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", nil, Unknown,
			"overlapping_holds 0 (found 1): 1 of them only because a process of lockquake stood still: client-1 did not run for 130.000 ms, from 170.000 ms on",
		},
		{"... where it is demanded", lateScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n", nil, Unknown, "stood still"},
		{"... where it is demanded by steps", lateScript, "expect: {overlapping_holds: \"1\", judged: \">=1\"}\n", func(d *runDir) { d.env.Directed = true }, Pass, ""},
		{"... where steps forbid it", lateScript, "expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", func(d *runDir) { d.env.Directed = true }, Unknown, "stood still"},
		{"... where as many are allowed", lateScript, "expect: {overlapping_holds: \"<=1\", judged: \">=1\"}\n", nil, Pass, ""},
		{"... is no part of another count", lateScript, "expect: {overlapping_holds: \">=0\", stale_writes: \"0\", judged: \">=1\"}\n", nil, Pass, ""},
		{
			"a standstill that is too short", strings.ReplaceAll(lateScript, "issued=130", "issued=80"),
			"expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", nil, Fail, "found 1",
		},
		{
			"a time that only a standstill makes too long", lateScript, "expect: {hold_max_ms: \"<=200ms\", overlapping_holds: \">=0\", judged: \">=1\"}\n",
			nil, Unknown, "client-1 did not run for 130.000 ms",
		},
		{
			"a time that is too long anyway", lateScript, "expect: {hold_max_ms: \"<=150ms\", overlapping_holds: \">=0\", judged: \">=1\"}\n",
			nil, Fail, "measured 300",
		},
		{
			"the wall clock moved, and grants end by it", overlapScript, "expect: {overlapping_holds: \">0\", token_regressions: \"0\", judged: \">=1\"}\n",
			func(d *runDir) { d.env.WallClock, d.env.ClockSteps = true, []ClockStep{{Time: 50e6, By: -2e9}} }, Unknown,
			"overlapping_holds >0 (found 1), double_grants 0 (found 0), foreign_releases 0 (found 0): the machine's wall clock moved by -2000.000 ms",
		},
		{
			"the wall clock moved, and the service does not care", serialScript, enough,
			func(d *runDir) { d.env.ClockSteps = []ClockStep{{Time: 50e6, By: 2e9}} }, Pass, "",
		},
		{
			"the wall clock moved before the workload was let go", serialScript, enough,
			func(d *runDir) {
				d.env.WallClock, d.env.ClockSteps, d.env.Start = true, []ClockStep{{Time: 1e6, By: 2e9}}, 5e6
			}, Pass, "",
		},
		{"grants that were not entitled", unentitled.ReplaceAllString(serialScript, "valid=unknown"), enough, nil, Unknown, "only 0 of 2 grants were entitled"},
		{
			"a heal that nobody saw", overlapScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n",
			func(d *runDir) {
				d.script.run.Faults[0].Healed = &history.Receipt{Status: history.Indeterminate, Evidence: "no answer"}
			}, Unknown, "the receipt of its heal is indeterminate (no answer)",
		},
		{
			"a heal that was seen", overlapScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n",
			func(d *runDir) { d.script.run.Faults[0].Healed = &history.Receipt{Status: history.Installed} }, Pass, "",
		},
		{"every injection is to bite, and one did not", overlapScript, "expect: {bit: all, judged: \">=1\"}\n", oneOfTwo, Unknown, "bit all: 1 of 2 injections bit"},
		{"one is enough", overlapScript, "expect: {bit: \">=1\", judged: \">=1\"}\n", oneOfTwo, Pass, ""},
		{"every injection is to bite, and did", overlapScript, "expect: {bit: all, judged: \">=1\"}\n", nil, Pass, ""},
		{"a directed run needs one grant", serialScript, "", func(d *runDir) {
			d.env.Directed = true
			d.scenario = "name: x\nclaim: y\nbackend: {use: memory, ttl: 10s}\nsteps: [{do: acquire, user: A}]\n"
		}, Pass, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := judged(t, prepared(t, c.text, c.expect, c.change))
			all := strings.Join(r.Reasons, "\n")
			if r.Verdict != c.want || !strings.Contains(all, c.reason) {
				t.Fatalf("verdict %s, want %s with %q; reasons:\n%s", r.Verdict, c.want, c.reason, all)
			}
			if (r.Verdict == Pass) != (len(r.Reasons) == 0) {
				t.Fatalf("a %s with reasons %q", r.Verdict, r.Reasons)
			}
		})
	}
}

func TestOneCauseIsGivenOnce(t *testing.T) {
	for name, d := range map[string]*runDir{
		"interrupted": prepared(t, serialScript, enough, func(d *runDir) {
			d.env.Interrupted, d.env.Unknown = true, []string{"the run was interrupted"}
		}),
		"a process of lockquake did not run": prepared(t, serialScript+"9000 A stall info issued=6000\n", enough, nil),
	} {
		r := judged(t, d)
		if n := strings.Count(strings.Join(r.Reasons, "\n"), name); n != 1 {
			t.Errorf("%q is given %d times: %q", name, n, r.Reasons)
		}
		if len(r.Strength) != 0 {
			t.Errorf("%s: %q, though nothing was passed", name, r.Strength)
		}
	}
}

// oneOfTwo adds an injection of the same entry that did not bite.
func oneOfTwo(d *runDir) {
	f := d.script.run.Faults[0]
	f.ID, f.Receipt.Status = 2, history.NotInstalled
	d.script.run.Faults = append(d.script.run.Faults, f)
}

func TestStrengthTellsHowManyInjectionsBit(t *testing.T) {
	r := judged(t, prepared(t, overlapScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n", oneOfTwo))
	if all := strings.Join(r.Strength, "\n"); !strings.Contains(all, "; bit 1 of 2") {
		t.Errorf("strength %q", r.Strength)
	}
}

func TestStrengthCountsChances(t *testing.T) {
	expect := "expect: {stale_writes: \"0\", judged: \">=1\"}\n"
	r := judged(t, prepared(t, serialScript, expect, nil))
	if all := strings.Join(r.Strength, "\n"); !strings.Contains(all, "0 stale writes in 0 accesses that arrived after a later holder: too few") || !strings.Contains(all, "0 double grants in 0 entitled grants") {
		t.Errorf("strength %q", r.Strength)
	}
}

func TestLatencyOfNothingIsNull(t *testing.T) {
	r := judged(t, prepared(t, "run resource=register\n0 A acquire invoke\n10 A acquire ok valid=1000 issued=1\n", enough, nil))
	if q := r.Latency["release"]; q != (Quantiles{}) {
		t.Errorf("release %+v", q)
	}
	if q := r.Latency["acquire"]; q.N != 1 || q.P50 == nil || q.Max == nil {
		t.Errorf("acquire %+v", q)
	}
}
