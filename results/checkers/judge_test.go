package checkers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

const (
	pauseOnHolder = "chaos: [{use: pause, on: holder, at: 10ms, for: 1s}]\n"
	enough        = "expect: {judged: \">=1\"}\n"
)

// Times of faults are relative to the start of the run.
func TestFaultTimesCountFromTheStart(t *testing.T) {
	r := judged(t, prepared(t, overlapScript, pauseOnHolder+enough, func(d *runDir) { d.env.Start = 4e6 }))
	if f := r.Faults[0]; f.StartMS != 16 || f.EndMS != 296 {
		t.Errorf("%+v", f)
	}
}

// TestWhoWasJudgedIsTold: the report has the programs of env.json, each with its nodes.
func TestWhoWasJudgedIsTold(t *testing.T) {
	one := results.Client{Process: "kazoo", Software: "2.10.0", Libraries: map[string]string{"kazoo": "2.10.0"}, Foreign: true}
	two := results.Client{Process: "lockquake client", Software: "test"}
	r := judged(t, prepared(t, serialScript, enough, func(d *runDir) {
		d.env.Clients = []results.ClientStats{{Name: "client-1", Client: one, Recorded: 4}, {Name: "client-2", Client: two, Recorded: 4}}
	}))
	want := []results.ReportClient{{Nodes: []string{"client-1"}, Client: one}, {Nodes: []string{"client-2"}, Client: two}}
	if !reflect.DeepEqual(r.Clients, want) {
		t.Errorf("judged were %+v, want %+v", r.Clients, want)
	}
}

// A history is read in batches; a run is judged whole, and under the name of its directory from any working
// directory.
func TestAHistoryOfManyBatches(t *testing.T) {
	const cycles = 900
	var text strings.Builder
	for i := range cycles {
		fmt.Fprintf(&text, "%d A acquire invoke\n%d A acquire ok valid=9000 issued=%d\n%d A release invoke\n%d A release ok\n", 10*i+1, 10*i+2, 10*i+1, 10*i+3, 10*i+4)
	}
	d := prepared(t, text.String(), enough, nil)
	t.Chdir(filepath.Dir(d.dir))
	r, err := results.Judge(filepath.Base(d.dir), All())
	if err != nil || r.Judged.Grants != cycles || r.Judged.Events < 4*cycles || r.RunDir != d.dir {
		t.Errorf("of %d grants: %+v in %s, %v", cycles, r.Judged, r.RunDir, err)
	}
}

func TestReport(t *testing.T) {
	d := prepared(t, overlapScript, pauseOnHolder+"expect: {overlapping_holds: \">0\", judged: \">=1\"}\n", nil)
	r := judged(t, d)
	if r.Judged != (results.Judged{Grants: 2, Entitled: 2, Events: 11, Effects: 3}) {
		t.Errorf("judged %+v", r.Judged)
	}
	if len(r.Phases) != 3 || r.Phases[1].Name != "pause 1" || r.Phases[1].Latency["acquire"].N != 1 {
		t.Errorf("phases %+v", r.Phases)
	}
	if q := r.Latency["acquire"]; q.N != 2 || *q.Max < 99.9 || *q.Max > 100.1 {
		t.Errorf("acquire %+v", q)
	}
	if q := r.Latency["hold"]; q.N != 2 || *q.Max < 309 || *q.Max > 311 {
		t.Errorf("hold %+v", q)
	}
	if !slices.ContainsFunc(r.Strength, func(s string) bool {
		return strings.HasPrefix(s, "0 double grants in 2 entitled grants of a lock that another user asked for or held meanwhile: too few to bound a rate")
	}) {
		t.Errorf("strength %q", r.Strength)
	}
	again := judged(t, d)
	if !reflect.DeepEqual(r, again) {
		t.Error("judged again, the report differs")
	}
	if err := results.WriteReport(d.dir, r); err != nil {
		t.Fatal(err)
	}
	back, err := results.ReadReport(d.dir)
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
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(results.Schema()))
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
	fits := func(r results.Report) error {
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
	known, err := scenarios.Load("etcd-holder-pause")
	if err != nil {
		t.Fatal(err)
	}
	never := results.NotRun(All(), known[0], "local", "nothing is there")
	if err := fits(never); err != nil {
		t.Errorf("not run: %v", err)
	}
	if n, ok := never.Counts["double_grants"]; never.Verdict != results.Unknown || !ok || n != nil || len(never.Reasons) != 1 || !strings.Contains(never.Reasons[0], "nothing is there") {
		t.Errorf("not run: %s with %v, because of %q", never.Verdict, never.Counts, never.Reasons)
	}
	d := prepared(t, serialScript, "", nil)
	damage(t, d, "client-1", -1)
	r, err := results.Judge(d.dir, All())
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
	path := filepath.Join(d.dir, results.DirHistory, process+".lqh")
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
		const known = "client-2: its stream did not end"
		d := prepared(t, overlapScript, enough, func(d *runDir) { d.env.Unknown = []string{known} })
		damage(t, d, "client-2", at)
		r, err := results.Judge(d.dir, All())
		if !errors.Is(err, history.ErrCorrupt) || !strings.Contains(err.Error(), "client-2.lqh") {
			t.Fatalf("at %d: error %v", at, err)
		}
		if r.Verdict != results.Unknown || len(r.Reasons) != 2 || !strings.Contains(r.Reasons[0], "client-2.lqh") || r.Reasons[1] != known {
			t.Errorf("at %d: %s because of %q", at, r.Verdict, r.Reasons)
		}
		for _, name := range All().Names() {
			if r.Counts[name] != nil || r.Measures[name] != nil {
				t.Errorf("at %d: %s was judged", at, name)
			}
		}
		if len(r.Counts) == 0 || r.Judged != (results.Judged{}) {
			t.Errorf("at %d: counts %v, judged %+v", at, r.Counts, r.Judged)
		}
	}
}

func TestDamagedFaults(t *testing.T) {
	d := prepared(t, overlapScript, enough, nil)
	if err := os.WriteFile(filepath.Join(d.dir, results.FileFaults), []byte("{\"id\":1}\n{\"id\":"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := results.Judge(d.dir, All()); !errors.Is(err, history.ErrCorrupt) || !strings.Contains(err.Error(), "line 2") {
		t.Fatal(err)
	}
}

// TestDamagedObservations: damaged answers of the service affect few checks. All else is judged, and the run is
// unknown.
func TestDamagedObservations(t *testing.T) {
	d := prepared(t, overlapScript, enough, nil)
	whole, err := results.Judge(d.dir, All())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, results.FileObserved), []byte("{\"id\":"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := results.Judge(d.dir, All())
	if err != nil || r.Verdict != results.Unknown || !strings.Contains(strings.Join(r.Reasons, " "), "the answers of the service cannot be read: history is damaged") {
		t.Fatalf("%s, %q, %v", r.Verdict, r.Reasons, err)
	}
	if !reflect.DeepEqual(r.Counts, whole.Counts) {
		t.Errorf("counts %v, and with the file whole %v", r.Counts, whole.Counts)
	}
}

type crasher struct{ after int }

func (c *crasher) Observe(*history.Event) {
	if c.after--; c.after < 0 {
		panic("out of order")
	}
}

func (c *crasher) follow(*tracker) watch { return watch{} }

func (c *crasher) Finish() results.Finding {
	return results.Finding{Verdict: results.Clean, Counts: map[string]*int64{"double_grants": new(int64(0))}}
}

func TestCheckerThatCrashesIsUnknown(t *testing.T) {
	kinds := All()
	for i := range kinds {
		if kinds[i].Name == "exclusion" {
			kinds[i].New = func(results.Run) results.Checker { return &crasher{after: 3} }
		}
	}
	r, err := results.Judge(prepared(t, serialScript, enough, nil).dir, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != results.Unknown || r.Counts["double_grants"] != nil || !strings.Contains(strings.Join(r.Reasons, " "), "out of order") {
		t.Errorf("%s, double grants %v, %q", r.Verdict, r.Counts["double_grants"], r.Reasons)
	}
	if n := r.Counts["token_regressions"]; n == nil || *n != 0 {
		t.Error("the others were not judged")
	}
	if i := slices.IndexFunc(r.Findings, func(f results.Finding) bool { return f.Checker == "exclusion" }); i < 0 || r.Findings[i].Verdict != results.Unknown {
		t.Errorf("its finding is %+v", r.Findings)
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
			if (c.want == history.NotInstalled) != (r.Verdict == results.Unknown) {
				t.Fatalf("verdict %s: %q", r.Verdict, r.Reasons)
			}
		})
	}
}

func TestLatencyLogsAreReadable(t *testing.T) {
	d := prepared(t, overlapScript, pauseOnHolder+enough, nil)
	r := judged(t, d)
	for name, q := range r.Latency {
		sum := hdrhistogram.New(results.LowestLatency, results.HighestLatency, 3)
		err := results.EachInterval(filepath.Join(d.dir, results.DirLatency, name+".hlog"), func(h *hdrhistogram.Histogram) { sum.Merge(h) })
		if err != nil {
			t.Fatal(err)
		}
		if sum.TotalCount() != q.N || q.N > 0 && results.Milli(sum.Max()) != *q.Max || q.N == 0 && q.Max != nil {
			t.Errorf("%s: the log has %d up to %v ms, the report %+v", name, sum.TotalCount(), results.Milli(sum.Max()), q)
		}
	}
}

// seer counts the events that it sees, and crashes at one of them.
type seer struct{ at, seen int }

func (s *seer) Observe(*history.Event) {
	if s.seen++; s.seen == s.at {
		panic("at this one")
	}
}

func (*seer) Finish() results.Finding { return results.Finding{} }

// TestOneThatCrashesLeavesTheOthersToGoOn: a checker crashes at its event and sees no more; the others go on.
func TestOneThatCrashesLeavesTheOthersToGoOn(t *testing.T) {
	var seats []*seat
	var crashed []int
	for i, at := range []int{0, 2, 2, 0, 3} {
		seats = append(seats, &seat{checker: &seer{at: at}, crashed: func(any) { crashed = append(crashed, i) }})
	}
	for range 4 {
		show(seats, &history.Event{})
	}
	var seen []int
	for _, s := range seats {
		seen = append(seen, s.checker.(*seer).seen)
	}
	if !slices.Equal(seen, []int{4, 2, 2, 4, 3}) || !slices.Equal(crashed, []int{1, 2, 4}) {
		t.Errorf("seen %d, crashed %d", seen, crashed)
	}
}
