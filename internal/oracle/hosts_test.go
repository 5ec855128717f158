package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// host is a machine with a clock of its own, whose rate is constant.
type host struct {
	offset int64 // ns to add to its time at zero to get the run's
	ppm    int64 // how slow it is
}

// own returns the clock's time at a time of the run.
func (h host) own(run int64) int64 {
	own := run - h.offset
	return own - own*h.ppm/(1_000_000+h.ppm)
}

// Run is what Shift needs to convert times of the run to the clock's.
func (h host) Run(run int64) int64 { return h.own(run) }

// measured returns measurements of the clock, one every two seconds or so, each right within its error.
func (h host) measured(t *rapid.T, name string, until int64) (ms []history.Measurement) {
	for run := int64(50 * 1e6); run < until+100*1e6; run += rapid.Int64Range(1e6, 1e9).Draw(t, "pause") {
		e := rapid.SampledFrom([]int64{10_000, 500_000, 4_000_000}).Draw(t, "error")
		wrong := rapid.Int64Range(-e+10, e-10).Draw(t, "wrong")
		own := h.own(run)
		ms = append(ms, history.Measurement{Process: name, At: own, OffsetNS: run - own + wrong, ErrorNS: e})
	}
	return ms
}

// elsewhere holds the processes that run on the other host.
type elsewhere map[string]bool

// keep writes the histories of all processes into a folder, those of the other host by its clock. It reads them back
// as one.
func keep(t *rapid.T, run results.Run, events []history.Event, other elsewhere, h host, clocks []history.Measurement, offset int64) (results.Run, []history.Event, []string) {
	dir, err := os.MkdirTemp("", "hosts")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, p := range run.Processes {
		header := history.Header{Process: p.Process, Locks: run.Locks}
		if other[p.Process] {
			header.OffsetNS = offset
		}
		w, err := history.Create(filepath.Join(dir, p.Process+".lqh"), header)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if process(&e) != p.Process {
				continue
			}
			if other[p.Process] {
				history.Shift(&e, h)
			}
			err = errors.Join(err, w.Append(&e))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var lines []byte
	for _, m := range clocks {
		line, _ := json.Marshal(m)
		lines = append(append(lines, line...), '\n')
	}
	if err := os.WriteFile(filepath.Join(dir, history.Clocks), lines, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := history.OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	run.Processes = m.Processes()
	var out []history.Event
	var from []string
	for {
		var e history.Event
		header, err := m.Next(&e)
		if errors.Is(err, io.EOF) {
			return run, out, from
		}
		if err != nil {
			t.Fatal(err)
		}
		out, from = append(out, e), append(from, header.Process)
	}
}

// drawHosts draws a history on one clock, and the processes that run elsewhere.
func drawHosts(t *rapid.T) (Run, []history.Event, elsewhere) {
	run, events := drawClocked(t, false)
	other := elsewhere{"client-2": true, "client-4": true}
	if rapid.Bool().Draw(t, "the register too") {
		other["register"] = true
	}
	return run, events, other
}

// TestTwoHostsAreJudgedAsOne: with a known offset, the histories of two hosts get the verdict of the same run on one
// clock.
func TestTwoHostsAreJudgedAsOne(t *testing.T) {
	checks(t, "2000")
	rapid.Check(t, func(rt *rapid.T) {
		run, events, other := drawHosts(rt)
		want := judged(run, events)
		h := host{offset: rapid.Int64Range(-1e6, 1e15).Draw(rt, "offset") * -1}
		got := judgedIn(keep(rt, resultsRun(run, events), events, other, h, nil, h.offset))
		for _, name := range names {
			if got[name] != want[name] {
				rt.Errorf("%s: %d on one host, %d on two\n%s", name, want[name], got[name], script(run, events, want))
			}
		}
	})
}

// TestTwoHostsProveNoMoreThanOne: with measured clocks, whatever is certain from the histories of two hosts is
// certain of the same run on one clock. A double grant that is longer than the errors is found.
func TestTwoHostsProveNoMoreThanOne(t *testing.T) {
	checks(t, "2000")
	found, all, unsure := int64(0), int64(0), int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		run, events, other := drawHosts(rt)
		want := judged(run, events)
		h := host{offset: -rapid.Int64Range(-1e6, 1e12).Draw(rt, "offset"), ppm: rapid.Int64Range(-490, 490).Draw(rt, "ppm")}
		var clocks []history.Measurement
		for name := range other {
			clocks = append(clocks, h.measured(rt, name, events[len(events)-1].Time)...)
		}
		got := judgedIn(keep(rt, resultsRun(run, events), events, other, h, clocks, 0))
		for _, name := range []string{"double_grants", "token_regressions", "foreign_releases", "stale_writes", "fence_saves"} {
			if got[name] > want[name] && (name == "double_grants" || !endsAtItsBegin(events)) {
				rt.Errorf("%s: %d on one host, %d on two, %v\n%s", name, want[name], got[name], clocks, script(run, events, want))
			}
		}
		// with several permits no pairs are counted, so none is unsure
		if a, b := want["double_grants"]+want["overlapping_holds"], got["double_grants"]+got["overlapping_holds"]; b > a || a > b+got["unsure_pairs"] && run.Permits <= 1 || got["unsure_pairs"] > got["possible_overlaps"] {
			rt.Errorf("%d overlaps on one host, on two %d and %d pairs unsure of %d possible, %v\n%s", a, b, got["unsure_pairs"], got["possible_overlaps"], clocks, script(run, events, want))
		}
		found, all, unsure = found+got["double_grants"], all+want["double_grants"], unsure+got["unsure_pairs"]
	})
	// Some 50 of 2,000 histories have an unsure pair, so having none by chance happens once in 10^21 runs. Nine lack
	// a double grant that one clock would prove, and that number may be zero: TestBothJudgesAgree shows that errors
	// count.
	if found < all/2 || unsure == 0 {
		t.Errorf("of %d double grants %d were found, and %d pairs are unsure", all, found, unsure)
	}
	t.Logf("of %d double grants %d were found, and %d pairs are unsure", all, found, unsure)
}

// endsAtItsBegin reports whether the service was last certain of a grant just when its user got it. Clocks that err
// cannot tell whether that was before or after it. Both prove an order; on one clock only the latter counts as a
// proof.
func endsAtItsBegin(events []history.Event) bool {
	begins := map[history.User]map[uint32]int64{}
	for _, e := range events {
		if e.Kind == history.Acquire && e.Phase == history.Ok {
			if begins[e.User] == nil {
				begins[e.User] = map[uint32]int64{}
			}
			begins[e.User][e.Op] = e.Time
		}
		if (e.Kind == history.Ended || e.Kind == history.Dead) && e.Time-begins[e.User][e.Grant] < 10*ms {
			return true
		}
	}
	return false
}

// A double grant of a second is found, even if the clock of one host is known only to a few milliseconds.
func TestADoubleGrantBetweenHostsIsFound(t *testing.T) {
	var drafts []draft
	add := func(u history.User, at int64, k history.Kind, p history.Phase, op *operation, value, valid int64) {
		drafts = append(drafts, draft{history.Event{User: u, Time: at * ms, Kind: k, Phase: p, Grant: 1, Value: value * ms, Valid: valid * ms}, op})
	}
	for c, at := range []int64{1000, 2000} {
		u, op := history.MakeUser(c, 0), &operation{}
		add(u, at, history.Acquire, history.Invoke, op, 0, 0)
		add(u, at+10, history.Acquire, history.Ok, op, at, 9000)
		add(u, 3000, history.Release, history.Invoke, &operation{}, 0, 0)
	}
	events := number(drafts)
	run := resultsRun(Run{Token: "none"}, events)
	rapid.Check(t, func(rt *rapid.T) {
		h := host{offset: -5e9, ppm: rapid.Int64Range(-490, 490).Draw(rt, "ppm")}
		got := judgedIn(keep(rt, run, events, elsewhere{"client-2": true}, h, h.measured(rt, "client-2", 3000*ms), 0))
		if fmt.Sprint(got["double_grants"], got["unsure_pairs"]) != "1 0" {
			rt.Errorf("%v", got)
		}
	})
}
