package report

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/report/story"
)

// recorded is a recorded run of sentinel-split-brain in containers.
func recorded(t *testing.T) synthetic {
	t.Helper()
	dir := t.TempDir() // the judge writes latency logs next to its input
	must(t, os.CopyFS(dir, os.DirFS("testdata/split-brain")))
	r, err := results.Judge(dir, checkers.All())
	must(t, err)
	return synthetic{dir, r}
}

// TestRecordedRun draws and explains a recorded run, and compares both with golden files.
func TestRecordedRun(t *testing.T) {
	s := recorded(t)
	golden(t, "split-brain.svg", pictureOf(t, s))
	var words bytes.Buffer
	must(t, Explain(&words, s.dir, s.report))
	golden(t, "split-brain.txt", words.Bytes())
	if n := strings.Count(words.String(), "\n"); n > 13 {
		t.Errorf("an explanation of %d lines", n)
	}
	for _, name := range []string{"double_grants", "stale_writes", "acknowledged_writes_lost"} {
		if n := s.report.Counts[name]; n == nil || *n != 1 {
			t.Errorf("%s is %v, want 1", name, n)
		}
	}
	if m := s.report.Measures["both_primaries_served_ms"]; m == nil || *m < 2000 || *m > 3500 {
		t.Errorf("both primaries served for %v ms", m)
	}
}

// TestRecordedStory: the story has the events of the recorded run, at the right lanes.
func TestRecordedStory(t *testing.T) {
	told := toldOf(t, recorded(t))
	var names []string
	for _, l := range told.Lanes {
		names = append(names, l.Name)
	}
	if d := cmp.Diff([]string{"A", "redis-1", "redis-2", "register", "B"}, names); d != "" {
		t.Fatal(d)
	}
	const a, old, young, b = 0, 1, 2, 4
	grants := map[int][]int{} // lanes of servers by lane of a client
	for _, m := range told.Marks {
		if m.Kind == story.MarkExchange && !m.Bad {
			grants[m.Lane] = append(grants[m.Lane], m.At...)
		}
	}
	if d := cmp.Diff(map[int][]int{a: {old, old}, b: {young}}, grants); d != "" {
		t.Errorf("who granted what: %s", d)
	}
	for _, want := range []struct {
		lane int
		text string
	}{
		{old, "redis-1 and A: cut off from redis-2, redis-3 and 4 others"},
		{young, "the primary now, by most accounts"},
		{old, "says: I am a slave"},
		{old, "the key of A is gone: it has that of B"},
		{a, "release: not held"},
		{b, "write 2"},
	} {
		if !slices.ContainsFunc(told.Marks, func(m story.Mark) bool { return m.Lane == want.lane && m.Label == want.text }) {
			t.Errorf("nothing says %q of %s", want.text, names[want.lane])
		}
	}
	if len(told.Regions) != 1 || !told.Regions[0].Double || len(told.Serves) != 2 {
		t.Errorf("regions %+v, servers that took writes %+v", told.Regions, told.Serves)
	}
	var banded []int
	for _, x := range told.Bands {
		banded = append(banded, x.Lane)
	}
	if d := cmp.Diff([]int{old, a}, banded); d != "" {
		t.Errorf("lanes that the fault hit: %s", d)
	}
}

// TestMessagesToAnUnknownServer draws messages to the edge of the lock service if the server that took them is unknown.
func TestMessagesToAnUnknownServer(t *testing.T) {
	s := recorded(t)
	must(t, os.WriteFile(s.dir+"/"+results.FileObserved, nil, 0o644))
	told := toldOf(t, s)
	for _, m := range told.Marks {
		if (m.Kind == story.MarkExchange || m.Kind == story.MarkAsk) && (m.To != story.AtService || len(m.At) > 0) {
			t.Errorf("%s goes to lane %d, seen at %v", m.Label, m.To, m.At)
		}
	}
	if len(told.Serves) > 0 || len(told.Lanes) != 4 || told.Lanes[1].Name != "redis-1" {
		t.Errorf("lanes %+v", told.Lanes)
	}
}

// TestOutage shows the longest time without a grant if nothing else was found.
func TestOutage(t *testing.T) {
	s := healthyRun(t)
	w := newWorld(t, 2)
	w.cycles(0, 20, 2000)
	w.cycles(1, 4500, 6000)
	s.dir = w.write()
	w.faults = []history.Fault{{
		ID: 1, Name: "kill", Targets: []string{"etcd-2"}, Start: at(2100), Bit: at(2110), End: at(4400),
		Receipt: history.Receipt{Status: history.Installed, Evidence: "etcd-2: no process"},
		Lead:    &history.Lead{Old: "etcd-2", New: "etcd-3", Led: at(3000), Epoch: "4"},
	}}
	writeFaults(t, s.dir, w.faults)
	s.report.Findings = append(s.report.Findings, results.Finding{Checker: "unavailability", Witnesses: []results.Witness{{
		Kind: "unavailability", Lock: "lock-0", From: at(2100), To: at(4499), Text: "2 of 3 locks could not be taken for 2.40 s: their holders had died",
	}}})
	told := toldOf(t, s)
	if told.Title != "2 of 3 locks could not be taken for 2.40 s; no double grant" || !strings.HasSuffix(told.Text, ": their holders had died") {
		t.Errorf("title %q, text %q", told.Title, told.Text)
	}
	page := pageOf(t, s)
	if !strings.Contains(page, "for 2.40 s: their holders had died.") || strings.Contains(page, "for 2.6") {
		t.Error("the page tells another time, or no reason")
	}
	for _, want := range []string{"etcd-2: killed (SIGKILL)", "etcd-3: leads now, in epoch 4", "etcd-2: up again"} {
		if !slices.Contains(lines(told), want) {
			t.Errorf("no %q in %q", want, lines(told))
		}
	}
}
