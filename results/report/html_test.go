package report

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// pageOf writes the report of a synthetic run and returns the page.
func pageOf(t *testing.T, s synthetic) string {
	t.Helper()
	must(t, Write(s.dir, s.report))
	b, err := os.ReadFile(filepath.Join(s.dir, results.FileReport))
	must(t, err)
	if dir := os.Getenv("LOCKQUAKE_PICTURES"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, t.Name()+".html"), b, 0o644))
	}
	return string(b)
}

func TestPageHasEverythingAndRefersToNothing(t *testing.T) {
	s := pausedRun(t, false)
	s.report.Warnings = []string{"member answered on http://10.0.0.2:2379, <b>late</b>"}
	page := pageOf(t, s)
	for _, want := range []string{
		`<html lang="en">`, "<title>etcd-holder-pause: pass", "A paused holder acts", "stale writes", "not judged",
		"below 0.243 %", "pid 4711", "Why an overlapping hold is not a double grant", "Latency spectrum", "Grants over time",
		`class="lq"`, "lq-stale", "effect-write ok", "lockquake run synthetic", "pause 1", "&lt;b&gt;late", "10.0.0.2:2379",
		"How to replay", "6.18",
		"etcd.version", "go.etcd.io/etcd/client/v3", "first_grant", "600 ms",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if ref := regexp.MustCompile(`(?i)https?://|src=|<link|@import|<script|url\([^#]`).FindString(page); ref != "" {
		t.Errorf("the page refers to something: %q", ref)
	}
	if n := strings.Count(page, "<h1"); n != 1 {
		t.Errorf("%d headings of the first level", n)
	}
}

func TestPageOfAHealthyRun(t *testing.T) {
	s := healthyRun(t)
	must(t, os.WriteFile(filepath.Join(s.dir, FilePicture), []byte("old"), 0o644))
	page := pageOf(t, s)
	for _, want := range []string{"Why not a pass", "expected &gt;500", "Nothing was broken", "FAIL"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, `class="lq"`) {
		t.Error("a run without witness has a picture")
	}
	if _, err := os.Stat(filepath.Join(s.dir, FilePicture)); !os.IsNotExist(err) {
		t.Error("the picture of an earlier judgement is still there")
	}
}

func TestDamagedHistoryStillGivesAReport(t *testing.T) {
	s := pausedRun(t, false)
	path := filepath.Join(s.dir, results.DirHistory, "client-1.lqh")
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, b[:len(b)-history.RecordSize-7], 0o644))
	page := pageOf(t, s)
	if !strings.Contains(page, "neither picture nor charts are drawn") || !strings.Contains(page, "client-1.lqh") {
		t.Error("the page does not say what is missing and where")
	}
}

func TestPictureFileIsThePageOne(t *testing.T) {
	s := restartRun(t)
	page := pageOf(t, s)
	svg, err := os.ReadFile(filepath.Join(s.dir, FilePicture))
	must(t, err)
	wellFormed(t, svg)
	if string(svg) != string(pictureOf(t, s)) {
		t.Error("two drawings of one witness differ")
	}
	_, body, _ := strings.Cut(string(svg), "<defs>")
	if !strings.Contains(page, body) {
		t.Error("the page shows another picture")
	}
}

func TestSpectrumIsTheSumOfTheLogs(t *testing.T) {
	s := healthyRun(t)
	got, err := readSpectrum(s.dir)
	must(t, err)
	for _, op := range results.Operations {
		if n := got[op].TotalCount(); n != 402 {
			t.Errorf("%s has %d samples, want 402", op, n)
		}
	}
	if top := got["acquire"].Max(); top < 2019*ms || top > 2023*ms {
		t.Errorf("the longest acquire took %d ns, want 2020 ms", top)
	}
	must(t, os.RemoveAll(filepath.Join(s.dir, results.DirLatency)))
	if page := pageOf(t, s); strings.Contains(page, "Latency spectrum") || !strings.Contains(page, "Grants over time") {
		t.Error("without logs there is a spectrum, or no time line")
	}
}

// TestSpectrumOfNoTime draws a hold that ended as it began, and an operation without samples.
func TestSpectrumOfNoTime(t *testing.T) {
	none, some := hdrhistogram.New(1, 1e9, 3), hdrhistogram.New(1, 1e9, 3)
	must(t, some.RecordValue(0))
	must(t, some.RecordValue(5*ms))
	if _, err := (spectrum{"hold": some, "handoff": none}).chart(); err != nil {
		t.Error(err)
	}
}

// TestRedIsForViolations: counts that prove nothing are listed with their meaning, and a pass that demanded
// violations says so.
func TestRedIsForViolations(t *testing.T) {
	r := results.Report{Verdict: results.Pass, Counts: map[string]*int64{
		"double_grants": ptr(int64(0)), "possible_overlaps": ptr(int64(24120)), "own_stalls": ptr(int64(1)),
		"unordered_effects": ptr(int64(0)), "stale_writes": nil,
	}}
	all, quiet := cards(r)
	for _, c := range all {
		if c.Tone != "zero" && c.Tone != "none" {
			t.Errorf("%+v", c)
		}
	}
	if len(quiet) != 2 || quiet[1].Value != "24,120" || quiet[1].Doc == "" {
		t.Errorf("%+v", quiet)
	}
	if s := sentence(r); !strings.HasPrefix(s, "PASS: no forbidden violation was found") {
		t.Error(s)
	}
	r.Counts["stale_writes"], r.Counts["overlapping_holds"], r.Counts["outlived_holds"] = ptr(int64(2)), ptr(int64(104)), ptr(int64(2))
	all, _ = cards(r)
	if c := all[1]; c.Value != "2" || c.Name != "holders outlived the grant" || !strings.HasPrefix(c.Doc, "104 overlapping holds") || c.Tone != "doubtful" {
		t.Errorf("%+v", c)
	}
	if c := all[2]; c.Tone != "violation" {
		t.Errorf("%+v", c)
	}
	if s := sentence(r); s != "PASS: the run found the expected violation." {
		t.Error(s)
	}
}

// TestNotesOfTheLock: a lock's remark on a figure is shown if the figure is in its range.
func TestNotesOfTheLock(t *testing.T) {
	env := results.Env{Notes: []results.Note{{Measure: "handoff_p50_ms", Least: 80, Most: 130, Text: "so it is"}}}
	for v, want := range map[float64]int{79: 0, 80: 1, 100: 1, 130: 1, 131: 0} {
		if got := notes(results.Report{Measures: map[string]*float64{"handoff_p50_ms": &v}}, env); len(got) != want {
			t.Errorf("%g ms: %q", v, got)
		}
	}
	if got := notes(results.Report{Measures: map[string]*float64{"handoff_p50_ms": nil}}, env); len(got) != 0 {
		t.Errorf("%q", got)
	}
}
