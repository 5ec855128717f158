package hunt

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/results"
)

func nothingFound() Result {
	return Result{
		Backend: "redis", Lock: "set-px-lua", Goals: []string{"double_grants"}, Runs: 120, Unknown: 3, Took: 600_000,
		Grants: 60_000, Behaviours: 812, LastNew: &Point{Run: 117, At: 590_000, Behaviours: 812},
		Curve:   []Point{{1, 4000, 300}, {50, 200_000, 700}, {117, 590_000, 812}},
		Bit:     []behaviour.Bite{{Fault: "pause", Role: "holder", Made: 40, Bit: 38}, {Fault: "kill", Role: "server", Made: 9, Bit: 9}},
		Refused: []string{"slow-disk: servers sync nothing to disk"},
		Nearest: &Nearest{Goal: "double_grants", Near: 0.5, Script: numbered(3), Run: 40},
	}
}

func TestTextSaysWhatNothingMeans(t *testing.T) {
	var b strings.Builder
	if err := nothingFound().Text(&b, "runs/hunt-1"); err != nil {
		t.Fatal(err)
	}
	const want = `redis/set-px-lua: nothing found (double grants)
  nearest to double grants: run 40 with 3 on clients (by: "-2s", how: it's # so)

tried
  120 runs in 10m0s, 60,000 grants judged; 3 of the runs unknown
  812 behaviours, the last new one in run 117 after 9m50s
  With 95 % confidence, fewer than 2.50 % of such runs and 0.005 % of such grants break the lock. What takes other faults, longer runs or more luck was not seen.

faults that bit
  fault  on      bit  of
  kill   server  9    9
  pause  holder  38   40

not tried here
  slow-disk: servers sync nothing to disk
`
	if b.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", b.String(), want)
	}
}

func TestTextTellsWhatIsHandedOut(t *testing.T) {
	r := nothingFound()
	r.Nearest = nil
	f := Finding{
		Violation: Violation{Goal: "double_grants", Count: 2, Claim: "Double grant: two clients hold lock-0"},
		Script:    numbered(3, 7, 9), Run: 17, At: 61_234, Dir: "hunt-redis/1",
	}
	r.Findings = []Finding{f}
	r.Shrunk = &Shrunk{
		Goal: "double_grants", Script: numbered(3, 7), Size: script.Size{Steps: 2, Faults: 2}, Reached: 10,
		Runs: 10, Proven: true, File: "found/double_grants.yaml", Claim: f.Claim,
	}
	var b strings.Builder
	if err := r.Text(&b, "runs/hunt-1"); err != nil {
		t.Fatal(err)
	}
	const want = `redis/set-px-lua: found double grants, after 17 runs and 1m1.2s
  Double grant: two clients hold lock-0
  3 on clients (by: "-2s", how: it's # so), 7 on clients (by: "-2s", how: it's # so)
  2 steps and 2 faults, which break it in 10 of 10 runs that had no part in its choice
  first run  runs/hunt-1/hunt-redis/1
  scenario   runs/hunt-1/found/double_grants.yaml
`
	if !strings.HasPrefix(b.String(), want) {
		t.Errorf("it says\n%s\nwant\n%s", b.String(), want)
	}
}

func TestThePageHasTheAnswerAndTheCurve(t *testing.T) {
	r := nothingFound()
	r.Command = "lockquake hunt --backend redis"
	var b bytes.Buffer
	if err := r.HTML(&b, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nothing found (double grants)", "<svg class=\"chart\"", "812 behaviours", "slow-disk", r.Command} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestGoals(t *testing.T) {
	right := Target{Lock: backends.Lock{Name: "right", Offers: backends.Offers{Token: backends.TokenNone}}}
	all, err := Goals(nil, right)
	if err != nil || len(all) != len(goals)-1 || all[0].Name != "double_grants" {
		t.Errorf("%v, %v: all but token_regressions", all, err)
	}
	if some, err := Goals([]string{"orphans", "stale_writes"}, right); err != nil || len(some) != 2 || some[0].Name != "stale_writes" {
		t.Errorf("%v, %v: in the order of all", some, err)
	}
	for text, named := range map[string][]string{
		"there is no goal": {"double_grant"}, "right cannot violate token_regressions: ": {"token_regressions"},
	} {
		if _, err := Goals(named, right); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %q", named, err, text)
		}
	}
	if _, err := Goals(nil, Target{Lock: backends.Lock{Name: "none", Absent: true}}); err == nil {
		t.Error("what is no lock can be hunted")
	}
}

func TestViolationsAreWhatTheJudgeCallsSo(t *testing.T) {
	two, none := 2.0, 0.0
	r := results.Report{Expectations: []results.ExpectationResult{
		{Name: "judged", Want: ">=1", Got: &two, Verdict: results.Pass},
		{Name: "stale_writes", Want: "0", Got: &two, Verdict: results.Unknown}, // only a stall explains it
		{Name: "double_grants", Want: "0", Got: &two, Verdict: results.Fail},
		{Name: "stuck_locks", Want: "0", Got: &none, Verdict: results.Unknown},
		{Name: "lost_updates", Want: "0", Got: &two, Verdict: results.Fail, Default: true},
	}}
	found, others := violations(r, goals)
	if len(found) != 1 || found[0].Goal != "double_grants" || found[0].Count != 2 {
		t.Errorf("found %v", found)
	}
	if len(others) != 1 || others[0] != "lost_updates" {
		t.Errorf("others %v", others)
	}
	r = results.Report{Verdict: results.Pass, Expectations: []results.ExpectationResult{
		{Name: "double_grants", Want: ">0", Got: &two, Verdict: results.Pass},
		{Name: "stale_writes", Want: ">=0", Got: &two, Verdict: results.Pass},
	}}
	if found, _ := violations(r, goals); len(found) != 1 {
		t.Errorf("found %v", found)
	}
}

// TestReached: an unknown run is one that a scenario of its own would not pass.
func TestReached(t *testing.T) {
	none, two := 0.0, 2.0
	for _, c := range []struct {
		name    string
		got     *float64
		goal    results.Verdict
		verdict results.Verdict
		others  []string

		ok, unsure bool
	}{
		{"a pass", &two, results.Pass, results.Pass, nil, true, false},
		{"with another count", &two, results.Pass, results.Fail, []string{"lost_updates"}, true, false},
		{"with something else", &two, results.Pass, results.Fail, nil, false, false},
		{"with a step that was not met", &two, results.Pass, results.Unknown, nil, false, true},
		{"explained by a stall", &two, results.Unknown, results.Unknown, nil, false, true},
		{"not judged", nil, results.Unknown, results.Unknown, nil, false, true},
		{"nothing, and no fault bit", &none, results.Unknown, results.Unknown, nil, false, false},
		{"nothing", &none, results.Fail, results.Fail, nil, false, false},
	} {
		r := results.Report{Verdict: c.verdict, Expectations: []results.ExpectationResult{
			{Name: "double_grants", Want: ">0", Got: c.got, Verdict: c.goal},
		}}
		if ok, unsure := reached(r, "double_grants", c.others); ok != c.ok || unsure != c.unsure {
			t.Errorf("%s: reached %t, unsure %t", c.name, ok, unsure)
		}
	}
}

func TestWhatCannotBeDeliveredHasALineForEachReason(t *testing.T) {
	got := Lacking([]script.Refused{
		{Fault: "delay", Keys: "by: 1ms", Reason: "no netem; no netem"},
		{Fault: "delay", Keys: "by: 2ms", Reason: "no netem"},
		{Fault: "loss", Reason: "no netem"},
		{Fault: "failover", Reason: "one server", Never: true},
	})
	if len(got) != 1 || got[0] != "delay, loss: no netem" {
		t.Errorf("%q", got)
	}
}

func TestEachGoalIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/hunt.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range GoalNames() {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("docs/hunt.md has no line of %s", name)
		}
	}
}
