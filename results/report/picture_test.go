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

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/picture"
	"github.com/lockquake/lockquake/results/report/scene"
	"github.com/lockquake/lockquake/results/report/story"
)

// sceneOf reads the scene of a synthetic run.
func sceneOf(t *testing.T, s synthetic) *scene.Scene {
	t.Helper()
	env, err := results.ReadEnv(s.dir)
	must(t, err)
	sc, err := scene.New(s.dir, s.report, env)
	must(t, err)
	if sc == nil {
		t.Fatal("nothing is told")
	}
	return sc
}

// toldOf returns the story of a synthetic run.
func toldOf(t *testing.T, s synthetic) *story.Story {
	t.Helper()
	return story.Tell(sceneOf(t, s))
}

// pictureOf draws a synthetic run; with LOCKQUAKE_PICTURES set it also keeps the file there.
func pictureOf(t *testing.T, s synthetic) []byte {
	t.Helper()
	svg := picture.Draw(toldOf(t, s))
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
func lines(s *story.Story) []string {
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

// TestRecordedReasonsAreShown: the explanation of a refusal is its recorded reason, and no guess.
func TestRecordedReasonsAreShown(t *testing.T) {
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
		return strings.Join(toldOf(t, s).Explain(), "\n")
	}
	for code, want := range map[uint8]string{
		history.CauseTokenLower:     ": its token is 3391, but 77 was seen before",
		history.CauseVersionChanged: ": version 77 was read, but 78 is current",
		history.CauseSequencerEnded: ": according to the lock service, its sequencer (token 77) is no longer valid",
		history.CauseOwnerChanged:   ": another grant is registered, or none",
	} {
		got := told(func(e *history.Event) { e.Code, e.Token, e.Value = code, 77, 78 })
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if got := told(func(e *history.Event) { e.Op = 1 }); !strings.Contains(got, ": "+scene.NoReason) {
		t.Errorf("a reason of something else is told: %s", got)
	}
}

func TestStoryOfADoubleGrant(t *testing.T) {
	got := toldOf(t, restartRun(t))
	if len(got.Regions) != 1 || !got.Regions[0].Double || got.Regions[0].From != at(391.5) || got.Regions[0].To != at(410.2) {
		t.Errorf("regions %+v", got.Regions)
	}
	for _, want := range []string{"redis-1: killed (SIGKILL)", "redis-1: serves again", "client-1: validity would have ended"} {
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
		"double": {`class="lq-double"`, "DOUBLE GRANT", `class="lq-pill-double"`, "validity would have ended"},
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
	healthy := healthyRun(t)
	if told, err := story.Of(healthy.dir, healthy.report, newWorld(t, 0).env); err != nil || told != nil {
		t.Errorf("a healthy run has a story: %v", err)
	}
}
