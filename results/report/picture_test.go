package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// sceneOf reads the scene of a synthetic run.
func sceneOf(t *testing.T, s synthetic) *scene {
	t.Helper()
	env, err := results.ReadEnv(s.dir)
	must(t, err)
	sc, err := newScene(s.dir, s.report, env)
	must(t, err)
	if sc == nil {
		t.Fatal("nothing is told")
	}
	return sc
}

// markerOf tells the story of a synthetic run, to which more can be added.
func markerOf(t *testing.T, s synthetic) marker {
	t.Helper()
	sc := sceneOf(t, s)
	return marker{sc, tell(sc)}
}

// toldOf tells the story of a synthetic run.
func toldOf(t *testing.T, s synthetic) *story {
	t.Helper()
	return markerOf(t, s).story
}

// pictureOf draws a synthetic run; with LOCKQUAKE_PICTURES set it also keeps the file there.
func pictureOf(t *testing.T, s synthetic) []byte {
	t.Helper()
	svg := picture(toldOf(t, s))
	if dir := os.Getenv("LOCKQUAKE_PICTURES"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, s.report.Scenario+".svg"), svg, 0o644))
	}
	wellFormed(t, svg)
	return svg
}

func wellFormed(t *testing.T, doc []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(doc)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

// lines lists the marks of a story in the order of time.
func lines(s *story) []string {
	var out []string
	for _, m := range s.Marks {
		line := s.Lanes[m.Lane].Name + ": " + m.Label
		if m.Below != "" {
			line += " / " + m.Below
		}
		out = append(out, line)
	}
	return out
}

func TestStoryOfAPause(t *testing.T) {
	got := toldOf(t, pausedRun(t, false))
	want := []string{
		"client-1: acquire", "client-3: acquire: granted, token 3391", "client-3: read 89",
		"client-3: paused (SIGSTOP)", "client-3: validity ends", "client-1: granted, token 3397",
		"client-3: both inside for 51.8 ms: overlapping hold", "client-1: read 89", "client-1: write 90", "client-1: release",
		"client-3: runs again", "client-3: stale write 90 / after client-1 wrote 90", "client-3: release: not held",
	}
	if d := cmp.Diff(want, lines(got)); d != "" {
		t.Error(d)
	}
	var names []string
	for _, l := range got.Lanes {
		names = append(names, l.Name)
	}
	if d := cmp.Diff([]string{"client-3", "lock service", "register", "client-1"}, names); d != "" {
		t.Error(d)
	}
	if got.Others == 0 {
		t.Error("the grants of other users are not counted")
	}
}

func TestStoryOfAFence(t *testing.T) {
	got := lines(toldOf(t, pausedRun(t, true)))
	if !slices.Contains(got, "client-3: write refused: token 3391 / 3397 was seen before; fence save") {
		t.Errorf("no refused write in %q", got)
	}
	if slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "stale") }) {
		t.Errorf("a refused write is called stale in %q", got)
	}
}

// TestReasonsAreTold: what is told of a refusal is what was recorded of it, and no guess.
func TestReasonsAreTold(t *testing.T) {
	s := pausedRun(t, true)
	told := func(change func(*history.Event)) string {
		path := filepath.Join(s.dir, results.DirHistory, "register.lqh")
		b, err := os.ReadFile(path)
		must(t, err)
		out := slices.Clone(b)
		for i := len(b) - history.RecordSize; i >= 0; i-- {
			var e history.Event
			if history.DecodeRecord(b[i:], &e) == nil && e.Kind == history.Reason {
				change(&e)
				copy(out[i:], history.AppendRecord(nil, &e))
			}
		}
		must(t, os.WriteFile(path, out, 0o600))
		return strings.Join(toldOf(t, s).explain(), "\n")
	}
	for code, want := range map[uint8]string{
		history.CauseTokenLower:     ": its token is 3391, and 77 was seen before",
		history.CauseVersionChanged: ": version 77 was read, and 78 stands there",
		history.CauseSequencerEnded: ": the lock service says that its sequencer (token 77) describes the lock no more",
		history.CauseOwnerChanged:   ": another grant is registered, or none",
	} {
		got := told(func(e *history.Event) { e.Code, e.Token, e.Value = code, 77, 78 })
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if got := told(func(e *history.Event) { e.Op = 1 }); !strings.Contains(got, ": "+NoReason) {
		t.Errorf("a reason of something else is told: %s", got)
	}
	for code := range uint8(255) {
		if _, ok := history.CauseOf(history.CodeName(code)); !ok || code == history.CauseAnsweredBy || code == history.CauseOwnerValue {
			continue // they are of grants, which are told otherwise
		}
		if short, long := causeWords(history.Event{Code: code, Token: 1, Value: 2}, history.Event{}); short == "" || long == "" {
			t.Errorf("there are no words for %s", history.CodeName(code))
		}
	}
}

func TestStoryOfADoubleGrant(t *testing.T) {
	got := toldOf(t, restartRun(t))
	if len(got.Regions) != 1 || !got.Regions[0].Double || got.Regions[0].From != at(391.5) || got.Regions[0].To != at(410.2) {
		t.Errorf("regions %+v", got.Regions)
	}
	for _, want := range []string{"redis-1: killed (SIGKILL)", "redis-1: serves again", "client-1: validity would end"} {
		if !slices.Contains(lines(got), want) {
			t.Errorf("no %q in %q", want, lines(got))
		}
	}
}

func TestFaultThatDidNotBiteIsNotDrawn(t *testing.T) {
	s := pausedRun(t, false)
	faults, err := results.ReadFaults(s.dir)
	must(t, err)
	other := faults[0]
	other.Targets = []string{"client-2"} // not in the picture
	faults[0].Receipt.Status = history.NotInstalled
	writeFaults(t, s.dir, append(faults, other))
	if got := toldOf(t, s); len(got.Bands) != 0 {
		t.Errorf("bands %+v", got.Bands)
	}
}

func TestPictureShowsWhatMatters(t *testing.T) {
	classes := map[string][]string{
		"stale":  {`class="lq-stale lq-arrow"`, `class="lq-overlap"`, `class="lq-band"`, `class="lq-hatch lq-h0"`, "lq-tear", "stale write 90", ">client-3<", ">client-1<", ">lock service<", ">register<"},
		"fenced": {`class="lq-refused"`, `class="lq-stop"`, `class="lq-band"`},
		"double": {`class="lq-double"`, "DOUBLE GRANT", `class="lq-pill-double"`, "validity would end"},
	}
	pictures := map[string][]byte{
		"stale": pictureOf(t, pausedRun(t, false)), "fenced": pictureOf(t, pausedRun(t, true)), "double": pictureOf(t, restartRun(t)),
	}
	for name, wants := range classes {
		for _, want := range wants {
			if !strings.Contains(string(pictures[name]), want) {
				t.Errorf("the picture %s lacks %s", name, want)
			}
		}
	}
	if strings.Contains(string(pictures["fenced"]), `class="lq-stale lq-arrow"`) {
		t.Error("a red arrow where nothing stale was written")
	}
	if _, _, ok := choose(healthyRun(t).report); ok {
		t.Error("a healthy run has a witness")
	}
}

func TestChooseTakesTheWorst(t *testing.T) {
	hold := []results.HoldRef{{Grant: 1}}
	r := results.Report{}
	for _, kind := range []string{"overlapping_hold", "fence_save", "stale_write", "double_grant"} {
		r.Findings = append(r.Findings, results.Finding{Witnesses: []results.Witness{{Kind: kind, Holds: hold}}})
		if w, _, _ := choose(r); w.Kind != kind {
			t.Errorf("chose %q over %q", w.Kind, kind)
		}
	}
}

func TestLayoutKeepsItsDistances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &story{Lanes: []lane{{Name: "a"}, {Name: "s", Kind: laneService}, {Name: "b"}}}
		now := start
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			now += rapid.SampledFrom([]int64{0, 1, 999, ms, 99 * ms, 100 * ms, 5000 * ms}).Draw(t, "gap")
			s.Marks = append(s.Marks, mark{Time: now, Below: rapid.SampledFrom([]string{"", "second"}).Draw(t, "below")})
		}
		l := place(s)
		for i := 1; i < len(l.Rows); i++ {
			a, b := l.Rows[i-1], l.Rows[i]
			if least := rowGap - 0.001; b.Y-a.Y < least || a.Below != "" && b.Y-a.Y < least+secondRow {
				t.Fatalf("rows %d and %d are %g apart", i-1, i, b.Y-a.Y)
			}
			if b.Time-a.Time < 2 {
				continue
			}
			if mid := l.at(a.Time + (b.Time-a.Time)/2); mid < a.Y || mid > b.Y {
				t.Fatalf("a time between %d and %d lies at %g", a.Time, b.Time, mid)
			}
		}
		if last := l.Rows[len(l.Rows)-1].Y; last >= l.Bottom || l.Bottom >= l.H {
			t.Fatalf("rows end at %g, lanes at %g, the picture at %g", last, l.Bottom, l.H)
		}
	})
}
