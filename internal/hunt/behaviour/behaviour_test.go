package behaviour

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

const ms = int64(1e6)

// tale is a run directory made by hand: two clients with one user each, a TTL of one second.
type tale struct {
	t        *testing.T
	dir      string
	clients  [2]*history.Writer
	engine   *history.Writer
	seq      [2]uint32
	faults   []history.Fault
	observed []history.Observation
	report   results.Report
}

func newTale(t *testing.T) *tale {
	x := &tale{t: t, dir: t.TempDir(), report: results.Report{Schema: results.ReportSchema}}
	x.check(os.MkdirAll(filepath.Join(x.dir, results.DirHistory), 0o755))
	for i := range x.clients {
		x.clients[i] = x.file(history.ClientName(i))
	}
	x.engine = x.file(history.Engine)
	return x
}

func (x *tale) check(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *tale) file(process string) *history.Writer {
	w, err := history.Create(filepath.Join(x.dir, results.DirHistory, process+".lqh"),
		history.Header{Process: process, Locks: []string{"lock-0"}})
	x.check(err)
	return w
}

// event adds an event of a client, and returns its number.
func (x *tale) event(client int, at int64, e history.Event) uint32 {
	x.seq[client]++
	e.Time, e.Seq, e.User = at*ms, x.seq[client], history.MakeUser(client, 0)
	if e.Op == 0 {
		e.Op = e.Seq
	}
	x.check(x.clients[client].Append(&e))
	return e.Seq
}

// acquires adds an acquire and its grant, which is valid until the given ms.
func (x *tale) acquires(client int, from, to, until int64) uint32 {
	op := x.event(client, from, history.Event{Kind: history.Acquire, Phase: history.Invoke})
	x.event(client, to, history.Event{
		Kind: history.Acquire, Phase: history.Ok, Op: op, Grant: op, Valid: until * ms,
		Value: from * ms,
	})
	return op
}

func (x *tale) releases(client int, grant uint32, from, to int64) {
	op := x.event(client, from, history.Event{Kind: history.Release, Phase: history.Invoke, Grant: grant})
	x.event(client, to, history.Event{Kind: history.Release, Phase: history.Ok, Op: op, Grant: grant})
}

// seen closes the directory and reads it.
func (x *tale) seen() Seen {
	x.t.Helper()
	for _, w := range append(x.clients[:], x.engine) {
		x.check(w.Close())
	}
	x.check(results.WriteJSON(filepath.Join(x.dir, results.FileEnv), results.Env{
		Schema: results.EnvSchema, TTL: 1000 * ms, Recovery: 2000 * ms, Expires: true, Finished: true,
	}))
	x.check(results.WriteReport(x.dir, x.report))
	x.lines(results.FileFaults, toAny(x.faults))
	x.lines(results.FileObserved, toAny(x.observed))
	s, err := Of(x.dir)
	x.check(err)
	return s
}

func toAny[T any](list []T) (out []any) {
	for _, one := range list {
		out = append(out, one)
	}
	return out
}

func (x *tale) lines(file string, list []any) {
	var b []byte
	for _, one := range list {
		line, err := json.Marshal(one)
		x.check(err)
		b = append(append(b, line...), 10)
	}
	x.check(os.WriteFile(filepath.Join(x.dir, file), b, 0o644))
}

func wantShown(t *testing.T, s Seen, all ...string) {
	t.Helper()
	for _, one := range all {
		if !slices.Contains(s.Behaviours, one) {
			t.Errorf("it does not show %q, but\n%s", one, strings.Join(s.Behaviours, "\n"))
		}
	}
}

func TestAGrantBesideAHoldThatOutlivedItsValidity(t *testing.T) {
	x := newTale(t)
	x.faults = []history.Fault{{
		ID: 1, Name: "pause", Selector: "holder", Targets: []string{"client-1"}, User: new(history.User),
		Start: 200 * ms, Bit: 210 * ms, Undo: 1900 * ms, End: 1910 * ms,
		Receipt: history.Receipt{Status: history.Installed},
	}}
	a := x.acquires(0, 100, 110, 1100)
	b := x.acquires(1, 120, 1110, 2100)
	x.releases(0, a, 2000, 2010)
	x.releases(1, b, 2050, 2060)
	s := x.seen()
	wantShown(t, s,
		"granted with 2^-1 ttl left",
		"pause@holder begins: its target holds",
		"pause@holder ends: another holds, its target holds too long",
		"pause@holder begins in the acquire of another user",
		"during pause@holder: acquire ok, other outlived",
		"grant beside an open hold, 2^-7 ttl after its end",
		"order a granted, a outlives, b granted",
		"release ok: begun after its end, another was granted it before",
		"after pause@holder: release ok, other valid",
		"pause@holder stood 2^0 ttl",
	)
	if s.Near["overlapping_holds"] != 1 || s.Near["double_grants"] >= 0.5+0.1 {
		t.Errorf("near: %v", s.Near)
	}
	if want := []Bite{{"pause", "holder", 1, 1}}; !slices.Equal(s.Bit, want) {
		t.Errorf("bites: %v, want %v", s.Bit, want)
	}
}

func TestWhatAQuietRunShows(t *testing.T) {
	x := newTale(t)
	a := x.acquires(0, 100, 110, 1100)
	x.releases(0, a, 200, 201)
	b := x.acquires(1, 300, 301, 1300)
	x.releases(1, b, 400, 401)
	s := x.seen()
	wantShown(t, s, "before: acquire ok, free", "order a granted, a releases, b granted",
		"release ok: nobody else was granted it")
	if len(s.Near) != 0 {
		t.Errorf("it is near to %v", s.Near)
	}
}

func TestAReleaseAcrossAnothersGrant(t *testing.T) {
	x := newTale(t)
	a := x.acquires(0, 100, 110, 1100)
	op := x.event(0, 1050, history.Event{Kind: history.Release, Phase: history.Invoke, Grant: a})
	x.observed = []history.Observation{{
		By: history.ByPoint, Node: "client-1", Fact: "before-del", Answer: "reached",
		Answered: 1060 * ms,
	}}
	b := x.acquires(1, 900, 1200, 2100)
	x.event(0, 1500, history.Event{Kind: history.Release, Phase: history.Ok, Op: op, Grant: a})
	x.releases(1, b, 1600, 1601)
	s := x.seen()
	wantShown(t, s, "point before-del reached: free", "point before-del reached in the acquire of another user",
		"release ok: done after its end, another was granted it meanwhile", "order a releases, b granted, a release ok")
	if s.Near["foreign_releases"] < 0.7 {
		t.Errorf("near: %v", s.Near)
	}
}

// The next user is usually granted the lock before the answer to a release is there.
func TestAHandOverIsNearNothing(t *testing.T) {
	x := newTale(t)
	a := x.acquires(0, 100, 110, 1100)
	op := x.event(0, 200, history.Event{Kind: history.Release, Phase: history.Invoke, Grant: a})
	b := x.acquires(1, 150, 205, 1150)
	x.event(0, 210, history.Event{Kind: history.Release, Phase: history.Ok, Op: op, Grant: a})
	x.releases(1, b, 300, 301)
	if s := x.seen(); len(s.Near) != 0 {
		t.Errorf("it is near to %v", s.Near)
	}
}

func TestWhatWasFoundIsABehaviour(t *testing.T) {
	x := newTale(t)
	n, zero, wait := int64(5), int64(0), 3000.0
	x.report.Findings = []results.Finding{
		{Verdict: results.Violated, Counts: map[string]*int64{"double_grants": &n, "possible_overlaps": &zero}},
		{Verdict: results.Clean, Counts: map[string]*int64{"grants": &n}},
	}
	x.report.Measures = map[string]*float64{"stuck_ms_max": &wait}
	x.acquires(0, 100, 110, 1100)
	s := x.seen()
	wantShown(t, s, "found double_grants: 2^2", "stuck_ms_max: 2^0 of the bound")
	if slices.ContainsFunc(s.Behaviours, func(b string) bool { return strings.HasPrefix(b, "found grants") }) {
		t.Error("a count of a clean finding is told as found")
	}
	if s.Near["stuck_locks"] != 0.75 {
		t.Errorf("near: %v", s.Near)
	}
}

func TestAFaultThatDidNotBiteStandsNowhere(t *testing.T) {
	x := newTale(t)
	x.faults = []history.Fault{{
		Name: "kill", Selector: "one", Targets: []string{"redis-1"}, Start: 50 * ms,
		Receipt: history.Receipt{Status: history.NotInstalled},
	}}
	x.acquires(0, 100, 110, 1100)
	s := x.seen()
	wantShown(t, s, "before: acquire ok, free")
	if want := []Bite{{"kill", "server", 1, 0}}; !slices.Equal(s.Bit, want) {
		t.Errorf("bites: %v, want %v", s.Bit, want)
	}
}

// TestFamily: faults, targets and amounts make no family of their own.
func TestFamily(t *testing.T) {
	for of, want := range map[string]string{
		"before: acquire ok, free":                                      "acquire ok, free",
		"during pause@holder (own): release fail not-held, other valid": "release fail not-held, other valid",
		"during delay@server + during pause@holder: release ok":         "release ok",
		"pause@holder begins: its target holds":                         "begins: its target holds",
		"kill@leader: another leads after 2^1 ttl":                      "another leads after ttl",
		"another leads after kill@leader: another holds":                "another leads after another holds",
		"pause@holder stood 2^0 ttl":                                    "stood ttl",
		"grant beside an open hold, 2^-8 ttl after its end":             "grant beside an open hold, ttl after its end",
		"release ok: done after its end, another was granted it before": "release ok: done after its end, another was granted it before",
		"point before-release reached: own valid":                       "point before-release reached: own valid",
		"order a granted, a outlives, b granted":                        "order a granted, a outlives, b granted",
		"acquire info timeout after 2^-1 ttl, other valid":              "acquire info timeout after ttl, other valid",
	} {
		if got := Family(of); got != want {
			t.Errorf("%q is of %q, want %q", of, got, want)
		}
	}
}
