package main

import (
	"flag"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/results"
)

var update = flag.Bool("update", false, "write the golden page anew")

// ran returns a run of the family.
func ran(verdict results.Verdict, acknowledged float64, lost int64) Run {
	two := int64(2)
	return Run{
		Result: campaign.Result{
			Verdict: verdict, Counts: map[string]*int64{"lost_elements": &lost, "overlapping_holds": &two}, Measures: map[string]*float64{"acknowledged_elements": &acknowledged},
		},
		Commit: "c0ffee0", Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Load: "1.5 1 1",
	}
}

func TestUnknownRunsAreNotPooled(t *testing.T) {
	lost, text := losses([]Run{ran(passed, 50, 10), ran(results.Unknown, 50, 50), ran(results.Fail, 100, 5), {Result: campaign.Result{Verdict: broken}}, ran(passed, 50, 0)})
	if want := "15 of 200, 7.5 % (4.3–12.1), 0–20"; lost != 15 || text != want {
		t.Errorf("lost %d, %s; want %s", lost, text, want)
	}
	if lost, text := losses(nil); lost != 0 || text != "–" {
		t.Errorf("the share of nothing is written as %s", text)
	}
}

func TestFailoversArePooled(t *testing.T) {
	t.Parallel()
	run := func(verdict results.Verdict, doubles ...int64) Run {
		r := Run{Result: campaign.Result{Verdict: verdict}}
		for i, n := range doubles {
			r.Failovers = append(r.Failovers, results.Failover{Held: 100, DoubleGrants: n, Promoted: new(i > 0), Lag: new(int64(50))})
		}
		return r
	}
	got := strings.Join(failovers([]Run{run(passed, 20, 0), run(results.Unknown, 90), run(passed, 0, 0), run(passed)}), " | ")
	if want := "4 | 2 of 4 | 50 | 100 | 20 | 1 of 4, 25 % (0.631–80.6) | 20 (1–100) | 5 (0.00631–80.6) | 0.05 (6.31e-05–0.806)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := strings.Join(failovers(nil), " | "), "– | – | – | – | – | – | – | – | –"; got != want {
		t.Errorf("no runs are %s", got)
	}
}

func TestRepeatedWorkIsPooled(t *testing.T) {
	t.Parallel()
	run := func(verdict results.Verdict, done float64, again int64) Run {
		return Run{Result: campaign.Result{Verdict: verdict, Counts: map[string]*int64{"repeated_work": &again}, Measures: map[string]*float64{"work_done": &done}}}
	}
	got := strings.Join(repeats([]Run{run(passed, 60, 10), run(results.Unknown, 60, 60), run(passed, 50, 0), {Result: campaign.Result{Verdict: passed}}}), " | ")
	if want := "100 | 10 | 1000 (490–1762)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := strings.Join(repeats(nil), " | "), "– | – | –"; got != want {
		t.Errorf("no runs are %s", got)
	}
}

// If the runs of the family, as far as there are any, do not meet its demands, the soak ends with an error.
func TestTheFamilysDemands(t *testing.T) {
	for _, c := range []struct {
		name            string
		leader, guarded []Run
		met             bool
		wanted          string
	}{
		{"all as it should be", []Run{ran(passed, 50, 3)}, []Run{ran(passed, 50, 0)}, true, "must lose some. Lost: 21 of 350, 6.0 %"},
		{"no leader's stop loses any", []Run{ran(passed, 50, 0)}, nil, false, "Lost: 0 of 350"},
		{"a fence loses", []Run{ran(passed, 50, 3)}, []Run{ran(passed, 50, 1)}, false, "must lose none. Lost: 4 of 200"},
		{"nothing but unknown runs", []Run{ran(results.Unknown, 50, 0)}, []Run{ran(results.Unknown, 50, 1)}, true, "must lose none. Lost: –."},
		{"not run", nil, nil, true, "must lose some. Lost: –."},
	} {
		rec := &record{runs: map[string][]Run{}}
		for _, row := range familyRows() {
			if fenced(row.ID) {
				rec.runs[row.ID] = c.guarded
			} else if strings.Contains(row.ID, "leader@") {
				rec.runs[row.ID] = c.leader
			} else {
				rec.runs[row.ID] = []Run{ran(passed, 50, 50)}
			}
		}
		answers, met := demands(rec)
		if met != c.met || !strings.Contains(answers, c.wanted) {
			t.Errorf("%s: met %t\n%s", c.name, met, answers)
		}
		if err := verdict(familyRows()[:1], rec); (err == nil || !strings.Contains(err.Error(), "Lost:")) != c.met {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func page(t *testing.T, rec *record) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.md")
	if err := writePage(rec, path); err != nil {
		t.Fatal(err)
	}
	return read(t, path)
}

// The golden page has a row of each kind, runs of two commits, one failure, one run without an answer, and a missing
// row.
func TestPage(t *testing.T) {
	run := func(commit string, verdict results.Verdict, reasons ...string) Run {
		r := ran(verdict, 50, 4)
		r.Commit, r.Reasons, r.Judged.Grants, r.Machine, r.Versions = commit, reasons, 100, "2 cores, kernel 6", map[string]string{"redis.version": "7", "example.org/module/v7": "v7.0.0"}
		return r
	}
	rec := &record{runs: map[string][]Run{
		"redis-holder-pause@docker":            {run("aaaaaaa", passed), run("bbbbbbb", results.Fail, "stale_writes 0: found 1", "judged >=2: 1 was judged")},
		"redis-holder-pause@local":             {run("aaaaaaa", passed)},
		"redis-healthy+redsync@docker":         {run("aaaaaaa", passed), run("aaaaaaa", passed), run("aaaaaaa", results.Unknown, "double_grants 0, stale_writes 0: "+strings.Repeat("the machine stood still. ", 9))},
		"fault-pause-redis@docker":             {run("aaaaaaa", passed)},
		familyStory + "+mutex+3.4+one@docker":  {run("aaaaaaa", passed)},
		familyStory + "-leader@local":          {run("aaaaaaa", passed)},
		"a-row-that-is-no-longer-there@docker": {run("aaaaaaa", passed)},
	}, missing: map[string]string{"fault-duplicate-redis@docker": "lockquake: fault-duplicate-redis: fault duplicate on redis-1 cannot be delivered by provider docker: no netem"}}
	got := page(t, rec)
	head, rest, _ := strings.Cut(got, "## Each fault on each backend\n")
	matrix, tail, ok := strings.Cut(rest, "## Jepsen's")
	for _, want := range []string{"| pause |", " 1/1 |", "| aaaaaaa 2026-01-02 |", " missing |", " not run |", " – |"} {
		if !ok || !strings.Contains(matrix, want) {
			t.Errorf("the matrix lacks %q:\n%s", want, matrix)
		}
	}
	// Rows that were not run come and go with the lists of stories, locks and faults.
	got = regexp.MustCompile(`(?m)^.* \|  \| – \|\n`).ReplaceAllString(head+tail, "")
	got = regexp.MustCompile(`\d+ of \d+ rows`).ReplaceAllString(got, "N of N rows")
	golden := filepath.Join("testdata", "page.md")
	if *update {
		write(t, golden, got)
	}
	if want := read(t, golden); got != want {
		t.Errorf("the page is not that of %s (-update writes it):\n%s", golden, got)
	}
}

// Rows of the page that the record lacks stay as they are; those it has are replaced. The text of the page is not
// read back.
func TestThePageKeepsWhatTheRecordLacks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	first := ran(passed, 50, 4)
	first.Machine = "2 cores, kernel 6"
	bad := ran(results.Fail, 50, 4)
	bad.Reasons = []string{"stale_writes 0: found 1"}
	for _, runs := range []map[string][]Run{
		{
			"redis-holder-pause@docker": {first}, "redis-clock-jump@docker": {bad}, "fault-pause-redis@docker": {first},
			"etcd-holder-pause@docker": {bad}, familyStory + "+mutex+3.4+one@docker": {first},
		},
		{"etcd-holder-pause@docker": {first, first}, "fault-pause-etcd@docker": {first, first}},
	} {
		write(t, path, "what a person wrote into the page")
		if err := writePage(&record{runs: runs}, path); err != nil {
			t.Fatal(err)
		}
	}
	got := read(t, path)
	for _, want := range []string{
		"| redis-holder-pause | 1/1 |", "| etcd-holder-pause | 2/2 |", "| mutex+3.4+one@docker | 1/1 |", "Made on: 2 cores, kernel 6, unknown.",
		"1 run did not pass", "- redis-clock-jump@docker, load 1.5: fail, stale_writes 0: found 1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if row := regexp.MustCompile(`(?m)^\| pause .*$`).FindString(got); !strings.Contains(row, "| 2/2 | not run | 1/1 |") {
		t.Errorf("the matrix has %s", row)
	}
}

const mostBytes = 42_000 // a row for each story on each provider

// A page on which every row was run, some at two commits, with many failures, is no longer than the published one may
// be.
func TestPageStaysShort(t *testing.T) {
	rec := &record{runs: map[string][]Run{}, missing: map[string]string{}}
	for i, row := range allRows() {
		for n := range row.Count {
			r := ran(passed, 80, 10)
			r.Judged.Grants = 10_000
			if i%20 == 0 {
				r.Commit = []string{"c0ffee0", "decaf00"}[n%2]
			}
			if n == 0 && i%5 == 0 {
				r.Verdict, r.Reasons = results.Unknown, []string{"double_grants 0: " + strings.Repeat("what stood still, ", 20)}
			}
			rec.runs[row.ID] = append(rec.runs[row.ID], r)
		}
	}
	rec.missing["fault-duplicate-redis@docker"] = strings.Repeat("because ", 100)
	if n := len(page(t, rec)); n > mostBytes {
		t.Errorf("the page has %d bytes, and may have %d", n, mostBytes)
	}
	if n := len(read(t, filepath.Join("..", "..", pageFile))); n > mostBytes {
		t.Errorf("%s has %d bytes, and may have %d", pageFile, n, mostBytes)
	}
}
