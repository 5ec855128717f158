package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockquake/lockquake/history"
)

// overlapScript is a paused holder that outlives its validity and then writes over the later one.
const overlapScript = `
run resource=register token=service
fault pause on=A hold=1 at=20 until=300
0 A acquire invoke
10 A acquire ok valid=110 issued=1 token=5
12 A effect-read ok
20 B acquire invoke
120 B acquire ok valid=1220 issued=119 token=7
125 B effect-read ok
310 A effect-write ok value=1
320 A release invoke
325 A release ok
400 B release invoke
405 B release ok
`

const serialScript = `
run resource=register token=service
0 A acquire invoke
10 A acquire ok valid=1000 issued=1 token=5
12 A effect-write ok
20 A release invoke
25 A release ok
30 B acquire invoke
40 B acquire ok valid=1040 issued=31 token=7
45 B release invoke
47 B release ok
`

const scenarioText = `name: test-run
claim: What a test wants to see.
backend: {use: memory, lock: mutex, ttl: 10s}
workload: {use: counter, clients: 2, resource: {use: register}}
run: {for: 1s, seed: 7}
`

// runDir is a run directory made from a script.
type runDir struct {
	t        *testing.T
	dir      string
	script   *script
	env      Env
	scenario string
}

func newRunDir(t *testing.T, text, expect string) *runDir {
	t.Helper()
	s, err := parseScript(text)
	if err != nil {
		t.Fatal(err)
	}
	return &runDir{t: t, dir: t.TempDir(), script: s, scenario: scenarioText + expect, env: Env{
		Schema: EnvSchema, Run: "r", Scenario: "test-run", Seed: 7, Started: "2026-01-02T03:04:05Z", TTL: s.run.TTL, Token: s.run.Token,
		Expires: s.run.Expires, Recovery: s.run.Recovery, Workload: "counter", Resource: s.run.Resource, End: 1e9,
		Finished: true, Recovered: true, FinalRead: true, Provider: "none", Backend: "memory", Lock: "mutex",
	}}
}

// write writes all files of the run; each client's events go into its own.
func (d *runDir) write() {
	d.t.Helper()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(d.dir, DirHistory), 0o755))
	files := map[string]*history.Writer{}
	seq := map[string]uint32{}
	for _, e := range d.script.events {
		name := clientName(e.User.Client())
		switch e.Kind {
		case history.EffectRead, history.EffectWrite:
			name = "register"
		case history.Final, history.Dead:
			name = "engine"
		default:
		}
		if files[name] == nil {
			w, err := history.Create(filepath.Join(d.dir, DirHistory, name+".lqh"), history.Header{Process: name, Locks: d.script.run.Locks})
			must(err)
			files[name] = w
		}
		seq[name]++
		e.Seq = seq[name]
		must(files[name].Append(&e))
	}
	for _, w := range files {
		must(w.Close())
	}
	env, err := json.Marshal(d.env)
	must(err)
	must(os.WriteFile(filepath.Join(d.dir, FileEnv), env, 0o644))
	must(os.WriteFile(filepath.Join(d.dir, FileScenario), []byte(d.scenario), 0o644))
	var faults bytes.Buffer
	for _, f := range d.script.run.Faults {
		must(json.NewEncoder(&faults).Encode(f))
	}
	must(os.WriteFile(filepath.Join(d.dir, FileFaults), faults.Bytes(), 0o644))
}

// renumber restores what a script numbers over all files of a client: only clients keep their operations' numbers, so
// effects, which lie in the register's file, must not take numbers of theirs.
func renumber(text string) string {
	var clients, others []string
	for _, l := range strings.Split(text, "\n") {
		if strings.Contains(l, " effect-") {
			others = append(others, l)
		} else {
			clients = append(clients, l)
		}
	}
	return strings.Join(append(clients, others...), "\n")
}

func judged(t *testing.T, d *runDir) Report {
	t.Helper()
	r, err := Judge(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func prepared(t *testing.T, text, expect string, change func(*runDir)) *runDir {
	t.Helper()
	d := newRunDir(t, renumber(text), expect)
	if change != nil {
		change(d)
	}
	d.write()
	return d
}

const (
	pauseOnHolder = "chaos: [{use: pause, on: holder, at: 10ms, for: 1s}]\n"
	enough        = "expect: {judged: \">=1\"}\n"
)

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
		{"a demanded violation is found though the fault did not bite", overlapScript,
			"chaos: [{use: pause, on: holder, at: 10ms, for: 1s}]\nexpect: {overlapping_holds: \">0\", judged: \">=2\"}\n", notInstalled, Unknown, "did not bite"},
		{"a demanded violation is not found", serialScript, demand, ghost, Fail, "overlapping_holds >0: found 0"},
		{"... and the fault did not bite", serialScript, demand, func(d *runDir) { ghost(d); notInstalled(d) }, Unknown, "did not bite"},
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
		{"dropped by its own word", serialScript, enough, func(d *runDir) { d.env.Clients = []ClientStats{{Name: "client-1", Dropped: 4}} }, Unknown, "4 events"},
		{"dropped", serialScript + "50 A dropped info value=3\n", enough, nil, Unknown, "3 events"},
		{"an own stall", serialScript + "9000 A stall info issued=6000\n", enough, nil, Unknown, "did not run"},
		{"an expectation of what is not judged", serialScript, "expect: {lost_updates: \"0\", judged: \">=1\"}\n", nil, Unknown, "do not count up"},
		{"an expectation of what there is not", serialScript, "expect: {loose_screws: \"0\", judged: \">=1\"}\n", nil, Unknown, "no such count"},
		{"a default that does not apply", strings.ReplaceAll(serialScript, "token=service", "token=none"), enough, nil, Pass, ""},
		{"a measure that is met", serialScript, "expect: {longest_wait_ms: \"<1s\", throughput_per_s: \">1\", judged: \">=1\"}\n", nil, Pass, ""},
		{"a measure that is not met", serialScript, "expect: {longest_wait_ms: \"<5ms\", judged: \">=1\"}\n", nil, Fail, "measured 10"},
		{"a measure met in a run that was cut short", serialScript, "expect: {longest_wait_ms: \"<1s\", judged: \">=1\"}\n",
			func(d *runDir) { d.env.Interrupted = true }, Unknown, "interrupted"},
		{"a share of the grants", overlapScript, "expect: {overlapping_holds: \">=50%\", judged: \">=1\"}\n", nil, Pass, ""},
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

func TestReport(t *testing.T) {
	d := prepared(t, overlapScript, pauseOnHolder+"expect: {overlapping_holds: \">0\", judged: \">=1\"}\n", nil)
	r := judged(t, d)
	if r.Judged != (Judged{Grants: 2, Events: 11, Effects: 3}) {
		t.Errorf("judged %+v", r.Judged)
	}
	if len(r.Phases) != 3 || r.Phases[1].Name != "pause 1" || r.Phases[1].Latency["acquire"].N != 1 {
		t.Errorf("phases %+v", r.Phases)
	}
	if q := r.Latency["acquire"]; q.N != 2 || q.Max < 99.9 || q.Max > 100.1 {
		t.Errorf("acquire %+v", q)
	}
	if q := r.Latency["hold"]; q.N != 2 || q.Max < 309 || q.Max > 311 {
		t.Errorf("hold %+v", q)
	}
	if !slices.ContainsFunc(r.Strength, func(s string) bool { return strings.HasPrefix(s, "0 double grants in 2 grants: the rate is below 3/2") }) {
		t.Errorf("strength %q", r.Strength)
	}
	again := judged(t, d)
	if !reflect.DeepEqual(r, again) {
		t.Error("judged again, the report differs")
	}
	if err := WriteReport(d.dir, r); err != nil {
		t.Fatal(err)
	}
	back, err := ReadReport(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(r)
	b, _ := json.Marshal(back)
	if !bytes.Equal(a, b) {
		t.Errorf("written and read again, the report differs:\n%s\n%s", a, b)
	}
}

func TestReportFitsSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("verdict.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("verdict.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	fits := func(r Report) error {
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(v)
	}
	for name, d := range map[string]*runDir{
		"overlap": prepared(t, overlapScript, pauseOnHolder+enough, nil),
		"serial":  prepared(t, serialScript, "", nil),
	} {
		r := judged(t, d)
		if err := fits(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.Verdict = "perhaps"
		if fits(r) == nil {
			t.Errorf("%s: a verdict that there is not fits the schema", name)
		}
	}
	d := prepared(t, serialScript, "", nil)
	damage(t, d, "client-1", -1)
	r, err := Judge(d.dir)
	if err == nil {
		t.Fatal("a truncated history is judged")
	}
	if err := fits(r); err != nil {
		t.Errorf("damaged: %v", err)
	}
}

// damage flips a byte of a history file, or, at -1, cuts off its end.
func damage(t *testing.T, d *runDir, process string, at int) {
	t.Helper()
	path := filepath.Join(d.dir, DirHistory, process+".lqh")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		b = b[:len(b)-10]
	} else {
		b[at] ^= 1
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedHistoryIsNotJudged(t *testing.T) {
	for _, at := range []int{-1, 3, 300} {
		d := prepared(t, overlapScript, enough, nil)
		damage(t, d, "client-2", at)
		r, err := Judge(d.dir)
		if !errors.Is(err, history.ErrCorrupt) || !strings.Contains(err.Error(), "client-2.lqh") {
			t.Fatalf("at %d: error %v", at, err)
		}
		if r.Verdict != Unknown || len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0], "client-2.lqh") {
			t.Errorf("at %d: %s because of %q", at, r.Verdict, r.Reasons)
		}
		for _, name := range Names() {
			if r.Counts[name] != nil || r.Measures[name] != nil {
				t.Errorf("at %d: %s was judged", at, name)
			}
		}
		if len(r.Counts) == 0 || r.Judged != (Judged{}) {
			t.Errorf("at %d: counts %v, judged %+v", at, r.Counts, r.Judged)
		}
	}
}

func TestDamagedFaults(t *testing.T) {
	d := prepared(t, overlapScript, enough, nil)
	if err := os.WriteFile(filepath.Join(d.dir, FileFaults), []byte("{\"id\":1}\n{\"id\":"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Judge(d.dir); !errors.Is(err, history.ErrCorrupt) || !strings.Contains(err.Error(), "line 2") {
		t.Fatal(err)
	}
}

type crasher struct{ after int }

func (c *crasher) Observe(*history.Event) {
	if c.after--; c.after < 0 {
		panic("out of order")
	}
}
func (c *crasher) Finish() Finding {
	return Finding{Verdict: Clean, Counts: map[string]*int64{"double_grants": count(0)}}
}

func TestCheckerThatCrashesIsUnknown(t *testing.T) {
	kinds := Checkers()
	for i := range kinds {
		if kinds[i].Name == "exclusion" {
			kinds[i].New = func(Run) Checker { return &crasher{after: 3} }
		}
	}
	r, err := judge(prepared(t, serialScript, enough, nil).dir, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != Unknown || r.Counts["double_grants"] != nil || !strings.Contains(strings.Join(r.Reasons, " "), "out of order") {
		t.Errorf("%s, double grants %v, %q", r.Verdict, r.Counts["double_grants"], r.Reasons)
	}
	if n := r.Counts["token_regressions"]; n == nil || *n != 0 {
		t.Error("the others were not judged")
	}
}

func TestHistoryHasTheLastWordOnReceipts(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       history.ReceiptStatus
		evidence   string
	}{
		{"in hand at the stop", overlapScript, history.Installed, ""},
		{"release before the stop", strings.Replace(overlapScript, "at=20", "at=321", 1), history.NotInstalled, "a release of that grant is stamped 320.000 ms"},
		{"granted after the stop", strings.Replace(overlapScript, "at=20", "at=5", 1), history.NotInstalled, "only at 10.000 ms"},
		{"lost before the stop", strings.Replace(overlapScript, "20 B acquire invoke", "15 A lost info\n20 B acquire invoke", 1), history.NotInstalled, "a lost of that grant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := judged(t, prepared(t, c.text, pauseOnHolder+enough, nil))
			if got := r.Faults[0].Receipt; got.Status != c.want || !strings.Contains(got.Evidence, c.evidence) {
				t.Fatalf("receipt %+v", got)
			}
			if (c.want == history.NotInstalled) != (r.Verdict == Unknown) {
				t.Fatalf("verdict %s: %q", r.Verdict, r.Reasons)
			}
		})
	}
}

func TestLatencyLogsAreReadable(t *testing.T) {
	d := prepared(t, overlapScript, pauseOnHolder+enough, nil)
	r := judged(t, d)
	for name, q := range r.Latency {
		b, err := os.ReadFile(filepath.Join(d.dir, DirLatency, name+".hlog"))
		if err != nil {
			t.Fatal(err)
		}
		lr := hdrhistogram.NewHistogramLogReader(bytes.NewReader(b))
		sum := hdrhistogram.New(lowestNS, highestNS, 3)
		for {
			h, err := lr.NextIntervalHistogram()
			if err != nil {
				t.Fatal(err)
			}
			if h == nil {
				break
			}
			sum.Merge(h)
		}
		if sum.TotalCount() != q.N || milli(sum.Max()) != q.Max && q.N > 0 {
			t.Errorf("%s: the log has %d up to %v ms, the report %+v", name, sum.TotalCount(), milli(sum.Max()), q)
		}
	}
}

// TestEveryCheckerHasABrokenHistory wants each property to be seen violated by some golden history.
func TestEveryCheckerHasABrokenHistory(t *testing.T) {
	red := map[string]bool{}
	paths, _ := filepath.Glob("testdata/golden/*.txt")
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(b), "\n----\n") {
			s, err := parseScript(part)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range s.judge() {
				for name, n := range f.Counts {
					red[name] = red[name] || n != nil && *n > 0
				}
				for name, m := range f.Measures {
					red[name] = red[name] || m != nil && *m > 0
				}
			}
		}
	}
	for _, name := range Names() {
		if !red[name] {
			t.Errorf("no golden history shows %s", name)
		}
	}
}

func TestNamesAreWhatCheckersYield(t *testing.T) {
	for _, k := range Checkers() {
		f := k.New(Run{Locks: []string{"lock-0"}, TTL: 1}).Finish()
		for _, name := range k.Counts {
			if _, ok := f.Counts[name]; !ok {
				t.Errorf("%s does not yield the count %s", k.Name, name)
			}
		}
		for _, name := range k.Measures {
			if _, ok := f.Measures[name]; !ok {
				t.Errorf("%s does not yield the measure %s", k.Name, name)
			}
		}
		if len(f.Counts) != len(k.Counts) || len(f.Measures) != len(k.Measures) {
			t.Errorf("%s yields %v and %v", k.Name, f.Counts, f.Measures)
		}
	}
}
