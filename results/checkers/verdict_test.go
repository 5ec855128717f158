package checkers

import (
	"regexp"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// unentitled matches the end of a validity in a script.
var unentitled = regexp.MustCompile(`valid=[0-9]+`)

// contestScript has two users that ask at the same moment.
const contestScript = `
10 A acquire invoke due=10
11 B acquire invoke due=10
20 A acquire ok valid=900 issued=15 tries=1
30 A release invoke
31 A release ok
40 B acquire ok valid=900 issued=35 tries=2
50 B release invoke
51 B release ok
`

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
		want               results.Verdict
		reason             string // must be in the reasons
	}{
		{"a clean run", serialScript, enough, nil, results.Pass, ""},
		{"too few grants", serialScript, "", nil, results.Unknown, "2 grants were judged"},
		{"too few grants, and what kept them away", serialScript + "9000 A stall info issued=8900\n", "", func(d *runDir) {
			d.env.Clients = []results.ClientStats{
				{Name: "client-1", Recorded: 5, Errors: map[string]int64{"took too long": 2, "a": 1, "b": 1}},
				{Name: "client-2", Recorded: 4, Errors: map[string]int64{"took too long": 3, "c": 2, "d": 1}},
			}
		}, results.Unknown, `only 2 grants were judged; errors of clients: "took too long" (5), "c" (2), "a" (1), others (2); client-1 did not run for`},
		{"as many as asked for", serialScript, "expect: {judged: \">=2\"}\n", nil, results.Pass, ""},
		{"fewer than asked for", serialScript, "expect: {judged: \">=3\"}\n", nil, results.Unknown, "only 2 grants"},
		{"a round without a winner is demanded, and each had one", contestScript, "expect: {rounds_without_winner: \">0\", judged: \">=2\"}\n", nil, results.Fail, "found 0"},
		{"... and some were late", strings.ReplaceAll(contestScript, "11 B acquire invoke", "15.1 B acquire invoke"), "expect: {rounds_without_winner: \">0\", judged: \">=2\"}\n", nil, results.Unknown, "50.0 % of the users who should ask at the same moment were late"},
		{"... also for a figure of attempts", strings.ReplaceAll(contestScript, "11 B acquire invoke", "15.1 B acquire invoke"), "expect: {failed_attempts_per_grant: \">2\", judged: \">=2\"}\n", nil, results.Unknown, "not in step"},
		{"a demanded violation is found", overlapScript, demand, nil, results.Pass, ""},
		{
			"a demanded violation is found though the fault did not bite", overlapScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}]\nexpect: {overlapping_holds: \">0\", judged: \">=2\"}\n", notInstalled, results.Unknown, "did not bite",
		},
		{"a demanded violation is not found", serialScript, demand, ghost, results.Fail, "overlapping_holds >0: found 0"},
		{"... and the fault did not bite", serialScript, demand, func(d *runDir) { ghost(d); notInstalled(d) }, results.Unknown, "did not bite"},
		{
			"the fault did not bite, where anything would do", serialScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}]\n" +
				"expect: {double_grants: \">=0\", foreign_releases: \">=0\", token_regressions: \">=0\", judged: \">=1\"}\n",
			func(d *runDir) { ghost(d); notInstalled(d) }, results.Unknown, "did not bite",
		},
		{"... and the fault was never injected", serialScript, demand, nil, results.Unknown, "pause was never injected"},
		{"a forbidden violation is found", overlapScript, "expect: {stale_writes: \"0\", judged: \">=1\"}\n", nil, results.Fail, "stale_writes 0: found 1"},
		{"... whatever bit", overlapScript, "expect: {stale_writes: \"0\", judged: \">=1\"}\n", notInstalled, results.Fail, "found 1"},
		{"fail is worse than unknown", overlapScript, "expect: {stale_writes: \"0\"}\n", func(d *runDir) { d.env.Finished = false }, results.Fail, ""},
		{"more than allowed", overlapScript, "expect: {overlapping_holds: \"<1\", judged: \">=1\"}\n", nil, results.Fail, ""},
		{"cut short", serialScript, enough, func(d *runDir) { d.env.Finished = false }, results.Unknown, "cut short"},
		{"interrupted", serialScript, enough, func(d *runDir) { d.env.Interrupted = true }, results.Unknown, "interrupted"},
		{"not recovered", serialScript, enough, func(d *runDir) { d.env.Recovered = false }, results.Unknown, "serving again"},
		{"no final read", serialScript, enough, func(d *runDir) { d.env.FinalRead = false }, results.Unknown, "final read"},
		{"a step that was not met", serialScript, enough, func(d *runDir) { d.env.Unknown = []string{"step 3 was not met"} }, results.Unknown, "step 3"},
		{"dropped by its own word", serialScript, enough, func(d *runDir) { d.env.Clients = []results.ClientStats{{Name: "client-1", Recorded: 4, Dropped: 4}} }, results.Unknown, "4 events"},
		{"dropped", serialScript + "50 A dropped info value=3\n", enough, nil, results.Unknown, "3 events"},
		{
			"a demanded violation is found in a run that was interrupted", overlapScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n",
			func(d *runDir) { d.env.Interrupted = true }, results.Unknown, "interrupted",
		},
		{
			"a violation is found, but events were dropped", overlapScript + "500 A dropped info value=3\n",
			"expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", nil, results.Unknown, "overlapping_holds 0 (found 1): the end of a hold",
		},
		{
			"... which says nothing of a stale write", overlapScript + "500 A dropped info value=3\n",
			"expect: {stale_writes: \"0\", judged: \">=1\"}\n", nil, results.Fail, "stale_writes 0: found 1",
		},
		{"a lost client", serialScript, enough, afterLoss(4), results.Unknown, "client-1 on host h-2 ended without its final message, and the end of its process was not seen: it may have gone on; its actions after its last event, at 25.000 ms, cannot be judged"},
		{
			"a lost client, and the grants that it held", strings.ReplaceAll(serialScript, "20 A release invoke\n25 A release ok\n", ""), enough, afterLoss(2), results.Unknown,
			"at 10.000 ms, cannot be judged, nor the grants that it held then: lock-0 (grant 1 of client-1/0)",
		},
		{"a lost client that told nothing", strings.ReplaceAll(serialScript, " A ", " C "), enough, func(d *runDir) {
			d.env.Clients = []results.ClientStats{{Name: "client-1", Lost: true}}
		}, results.Unknown, "client-1 ended without its final message; it sent no event"},
		{"a violation is found that a lost client cannot refute", overlapScript, "expect: {stale_writes: \"0\", judged: \">=1\"}\n", afterLoss(4), results.Fail, "stale_writes 0: found 1"},
		{
			"a violation is found that a lost client may explain", "run resource=register\n0 A acquire invoke\n10 A acquire ok valid=1000 issued=1\n12 A effect-read fail fenced\n20 A release invoke\n",
			"expect: {false_refusals: \"0\", judged: \">=1\"}\n", afterLoss(3), results.Unknown, "false_refusals 0 (found 1): its cause may be among the missing events",
		},
		{
			"nobody knows when a call of a lost client returned", serialScript + "48 A acquire invoke valid=50\n30000 B acquire invoke\n", "expect: {deaf_waits: \"0\", judged: \">=1\"}\n",
			afterLoss(5), results.Unknown, "ended without its final message",
		},
		{
			"one of two entries of the same fault was never injected", overlapScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}, {use: pause, on: holder, at: 20ms, for: 1s}]\nexpect: {judged: \">=2\"}\n",
			func(d *runDir) { d.script.run.Faults[0].Entry = 1 }, results.Unknown, "pause was never injected (entry 2 of chaos)",
		},
		{
			"entries are told apart by their number", overlapScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}, {use: pause, on: holder, at: 20ms, for: 1s}]\nexpect: {judged: \">=2\"}\n",
			func(d *runDir) {
				f := d.script.run.Faults[0]
				d.script.run.Faults[0].Entry = 1
				f.ID, f.Entry, f.Receipt.Status = 2, 2, history.NotInstalled
				d.script.run.Faults = append(d.script.run.Faults, f)
			}, results.Unknown, "did not bite",
		},
		{"an own stall", serialScript + "9000 A stall info issued=6000\n", enough, nil, results.Unknown, "did not run"},
		{
			"an own stall before anybody could ask", serialScript + "9000 A stall info issued=6000\n", enough,
			func(d *runDir) { d.env.Start = 9e9 }, results.Pass, "",
		},
		{
			"an own stall whose end lies in the run", serialScript + "9000 A stall info issued=6000\n", enough,
			func(d *runDir) { d.env.Start = 35e8 }, results.Unknown, "from 0.000 ms to 5500.000 ms",
		},
		{"an expectation of what is not judged", serialScript, "expect: {lost_updates: \"0\", judged: \">=1\"}\n", nil, results.Unknown, "are no increments"},
		{"an expectation of what there is not", serialScript, "expect: {loose_screws: \"0\", judged: \">=1\"}\n", nil, results.Unknown, "no such count"},
		{"a default that does not apply", strings.ReplaceAll(serialScript, "token=service", "token=none"), enough, nil, results.Pass, ""},
		{"a measure that is met", serialScript, "expect: {longest_wait_ms: \"<1s\", throughput_per_s: \">1\", judged: \">=1\"}\n", nil, results.Pass, ""},
		{"a measure that is not met", serialScript, "expect: {longest_wait_ms: \"<5ms\", judged: \">=1\"}\n", nil, results.Fail, "measured 10"},
		{
			"a measure met in a run that was cut short", serialScript, "expect: {longest_wait_ms: \"<1s\", judged: \">=1\"}\n",
			func(d *runDir) { d.env.Interrupted = true }, results.Unknown, "interrupted",
		},
		{"a share of the grants", overlapScript, "expect: {overlapping_holds: \">=50%\", judged: \">=1\"}\n", nil, results.Pass, ""},
		{
			"what only a standstill explains", lateScript, "expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", nil, results.Unknown,
			"overlapping_holds 0 (found 1): 1 of them due only to a standstill of a process of lockquake: client-1 did not run for 130.000 ms, from 170.000 ms on",
		},
		{"... where it is demanded", lateScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n", nil, results.Unknown, "standstill"},
		{"... where it is demanded by steps", lateScript, "expect: {overlapping_holds: \"1\", judged: \">=1\"}\n", func(d *runDir) { d.env.Directed = true }, results.Pass, ""},
		{"... where it is demanded by steps beside a workload", lateScript, "expect: {overlapping_holds: \"1\", judged: \">=1\"}\n", func(d *runDir) { d.env.People = map[string]string{"A": "client-1"} }, results.Pass, ""},
		{"... where steps forbid it", lateScript, "expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", func(d *runDir) { d.env.Directed = true }, results.Unknown, "standstill"},
		{"... where as many are allowed", lateScript, "expect: {overlapping_holds: \"<=1\", judged: \">=1\"}\n", nil, results.Pass, ""},
		{"... is no part of another count", lateScript, "expect: {overlapping_holds: \">=0\", stale_writes: \"0\", judged: \">=1\"}\n", nil, results.Pass, ""},
		{
			"a standstill that is too short", strings.ReplaceAll(lateScript, "issued=130", "issued=80"),
			"expect: {overlapping_holds: \"0\", judged: \">=1\"}\n", nil, results.Fail, "found 1",
		},
		{
			"no standstill excuses a token regression", strings.ReplaceAll(lateScript, "token=5", "token=9"),
			"expect: {token_regressions: \"0\", judged: \">=1\"}\n", nil, results.Fail, "token_regressions 0: found 1",
		},
		{
			"no standstill excuses a foreign release", strings.ReplaceAll(lateScript, "405 B release ok", "405 B release fail not-held"),
			"expect: {foreign_releases: \"0\", judged: \">=1\"}\n", nil, results.Fail, "foreign_releases 0: found 1",
		},
		{
			"a time that only a standstill makes too long", lateScript, "expect: {hold_max_ms: \"<=200ms\", overlapping_holds: \">=0\", judged: \">=1\"}\n",
			nil, results.Unknown, "client-1 did not run for 130.000 ms",
		},
		{
			"a time that is too long anyway", lateScript, "expect: {hold_max_ms: \"<=150ms\", overlapping_holds: \">=0\", judged: \">=1\"}\n",
			nil, results.Fail, "measured 300",
		},
		{
			"the wall clock moved, and grants end by it", overlapScript, "expect: {overlapping_holds: \">0\", token_regressions: \"0\", judged: \">=1\"}\n",
			func(d *runDir) { d.env.WallClock, d.env.ClockSteps = true, []results.ClockStep{{Time: 50e6, By: -2e9}} }, results.Unknown,
			"overlapping_holds >0 (found 1), double_grants 0 (found 0), foreign_releases 0 (found 0): the machine's wall clock moved by -2000.000 ms",
		},
		{
			"the wall clock moved, and the service does not care", serialScript, enough,
			func(d *runDir) { d.env.ClockSteps = []results.ClockStep{{Time: 50e6, By: 2e9}} }, results.Pass, "",
		},
		{
			"the wall clock moved before the workload was let go", serialScript, enough,
			func(d *runDir) {
				d.env.WallClock, d.env.ClockSteps, d.env.Start = true, []results.ClockStep{{Time: 1e6, By: 2e9}}, 5e6
			}, results.Pass, "",
		},
		{
			"the wall clock moved as the workload was let go", serialScript, enough,
			func(d *runDir) {
				d.env.WallClock, d.env.ClockSteps, d.env.Start = true, []results.ClockStep{{Time: 5e6, By: 2e9}}, 5e6
			}, results.Unknown, "the machine's wall clock moved by 2000.000 ms",
		},
		{"grants that were not entitled", unentitled.ReplaceAllString(serialScript, "valid=unknown"), enough, nil, results.Unknown, "only 0 of 2 grants were entitled"},
		{
			"a heal that nobody saw", overlapScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n",
			func(d *runDir) {
				d.script.run.Faults[0].Healed = &history.Receipt{Status: history.Indeterminate, Evidence: "no answer"}
			}, results.Unknown, " its receipt is indeterminate (no answer)",
		},
		{
			"a heal that was seen", overlapScript, "expect: {overlapping_holds: \">0\", judged: \">=1\"}\n",
			func(d *runDir) { d.script.run.Faults[0].Healed = &history.Receipt{Status: history.Installed} }, results.Pass, "",
		},
		{"every injection is to bite, and one did not", overlapScript, "expect: {bit: all, judged: \">=1\"}\n", oneOfTwo, results.Unknown, "bit all: 1 of 2 injections bit"},
		{"one is enough", overlapScript, "expect: {bit: \">=1\", judged: \">=1\"}\n", oneOfTwo, results.Pass, ""},
		{"every injection is to bite, and did", overlapScript, "expect: {bit: all, judged: \">=1\"}\n", nil, results.Pass, ""},
		{"a step that must not be done was done", serialScript, enough, func(d *runDir) {
			d.env.Refuted = []string{"step 3, release of A, was done, but must not be"}
		}, results.Fail, "step 3, release of A, was done, but must not be"},
		{"a step that had to be done was not", serialScript, enough, missed(20, 30, 0), results.Fail, "line 9: B acquire"},
		{
			"a step that had to be done was not while something was broken", "fault pause on=A at=10 until=25\n" + serialScript, enough, missed(20, 30, 0),
			results.Unknown, "line 9: B acquire",
		},
		{
			"and not within the recovery bound after that", "run recovery=100\nfault pause on=A at=10 until=15\n" + serialScript, enough, missed(114, 130, 0),
			results.Unknown, "line 9: B acquire",
		},
		{
			"and not later", "run recovery=100\nfault pause on=A at=10 until=15\n" + serialScript, enough, missed(116, 130, 0), results.Fail, "line 9: B acquire",
		},
		{
			"its deadline passed while a process stood still for less than was to spare", "run recovery=100\n" + serialScript + "100 B stall info issued=29\n", enough,
			missed(10, 140, 130), results.Fail, "line 9: B acquire",
		},
		{
			"its deadline passed while a process stood still for longer", "run recovery=100\n" + serialScript + "100 B stall info issued=31\n", enough, missed(10, 140, 130),
			results.Unknown, "line 9: B acquire",
		},
		{
			"a grant that ends as it comes into hand is entitled to nothing", "1 A acquire invoke\n10 A acquire ok valid=10 issued=2\n20 A release invoke\n21 A release ok\n", enough, nil,
			results.Unknown, "only 0 of 1 grant were entitled",
		},
		{"a directed run needs one grant", serialScript, "", func(d *runDir) {
			d.env.Directed = true
			d.scenario = "name: x\nclaim: y\nbackend: {use: memory, ttl: 10s}\nsteps: [{do: acquire, user: A}]\n"
		}, results.Pass, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := judged(t, prepared(t, c.text, c.expect, c.change))
			all := strings.Join(r.Reasons, "\n")
			if r.Verdict != c.want || !strings.Contains(all, c.reason) {
				t.Fatalf("verdict %s, want %s with %q; reasons:\n%s", r.Verdict, c.want, c.reason, all)
			}
			if (r.Verdict == results.Pass) != (len(r.Reasons) == 0) {
				t.Fatalf("a %s with reasons %q", r.Verdict, r.Reasons)
			}
		})
	}
}

// afterLoss loses client-1, after the given number of its events.
func afterLoss(told int64) func(*runDir) {
	return func(d *runDir) {
		d.env.Cluster = map[string]string{"host_client-1": "h-2"}
		d.env.Clients = []results.ClientStats{{Name: "client-1", Lost: true, Recorded: told}, {Name: "client-2", Dead: true}}
	}
}

func TestOneCauseIsGivenOnce(t *testing.T) {
	for name, d := range map[string]*runDir{
		"client-1 on host h-2": prepared(t, serialScript, enough, afterLoss(4)),
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

// TestAWarningIsNotTheCause of a zero that is unknown because a client was lost.
func TestAWarningIsNotTheCause(t *testing.T) {
	const refused = "run resource=register\n0 A acquire invoke\n10 A acquire ok valid=1000 issued=1\n12 A effect-read fail fenced\n20 A release invoke\n"
	r := judged(t, prepared(t, refused, "expect: {stale_writes: \"0\", judged: \">=1\"}\n", afterLoss(3)))
	if all := strings.Join(r.Reasons, "\n"); r.Verdict != results.Unknown || strings.Contains(all, "refused") || !strings.Contains(strings.Join(r.Warnings, "\n"), "refused 1 access") {
		t.Errorf("%s: %s\nwarnings: %q", r.Verdict, all, r.Warnings)
	}
}

func TestStrengthHasTheInjectionsThatBit(t *testing.T) {
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

func TestLatencyWithoutSamplesIsNull(t *testing.T) {
	r := judged(t, prepared(t, "run resource=register\n0 A acquire invoke\n10 A acquire ok valid=1000 issued=1\n", enough, nil))
	if q := r.Latency["release"]; q != (results.Quantiles{}) {
		t.Errorf("release %+v", q)
	}
	if q := r.Latency["acquire"]; q.N != 1 || q.P50 == nil || q.Max == nil {
		t.Errorf("acquire %+v", q)
	}
}

// TestLatenciesOfFewOfTheOffered: if one in a hundred arrivals was not served, the latencies of the others prove
// nothing.
func TestLatenciesOfFewOfTheOffered(t *testing.T) {
	for _, c := range []struct {
		unserved int64
		expect   string
		want     results.Verdict
	}{
		{0, "acquire_p99_ms: <1s, ", results.Pass},
		{7, "acquire_p99_ms: <1s, ", results.Unknown},
		{7, "throughput_per_s: '>0', ", results.Pass},
		{7, "acquire_p99_ms: <1s, unserved: '>=7', ", results.Pass},
		{7, "unserved_share: <5%, ", results.Fail},
	} {
		r := judged(t, prepared(t, strings.ReplaceAll(serialScript, "acquire invoke", "acquire invoke issued=1"), "expect: {"+c.expect+"judged: '>=1'}", func(d *runDir) {
			d.env.Clients = []results.ClientStats{{Name: "client-1", Recorded: 4, Unstarted: c.unserved}}
		}))
		if r.Verdict != c.want {
			t.Errorf("%d unserved, %s: %s, want %s: %q", c.unserved, c.expect, r.Verdict, c.want, r.Reasons)
		}
		if c.want == results.Unknown && !strings.Contains(strings.Join(r.Reasons, "\n"), "never got a user") {
			t.Errorf("%q", r.Reasons)
		}
	}
}

// missed records a step that had to be done and was not; the times are in ms. within is its deadline, if that passed.
func missed(from, to, within int64) func(*runDir) {
	return func(d *runDir) {
		const text = "line 9: B acquire: its outcome is fail (held), the step wants ok"
		d.env.Unknown = []string{text}
		d.env.Missed = []results.Missed{{Text: text, From: from * 1e6, To: to * 1e6, Within: within * 1e6}}
	}
}
