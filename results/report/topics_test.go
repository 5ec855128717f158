package report

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/scene"
	"github.com/lockquake/lockquake/results/report/story"
)

// svgText matches a text of a picture, and not its style.
var svgText = regexp.MustCompile(`>([^<>{]+)<`)

// TestExpectedCountsAreShown in headline, words and picture: each count above zero with a witness, whether or not a
// picture draws it by itself. Figures without a time come at the end.
func TestExpectedCountsAreShown(t *testing.T) {
	w := newWorld(t, 2)
	w.env.People = map[string]string{"A": "client-1", "B": "client-2"}
	a := w.acquire(history.MakeUser(0, 0), 1, 2, 7, 10_000)
	w.access(a, history.Write, 5, 6, 1, history.Ok)
	w.release(a, 10, history.Ok, 0)
	b := w.acquire(history.MakeUser(1, 0), 11, 12, 3, 10_000)
	w.access(b, history.Write, 15, 16, 2, history.Fail)
	w.release(b, 20, history.Ok, 0)
	dir := w.write(a, b)
	r := baseReport(w, dir)
	name := func(count string, n int64) {
		r.Counts[count] = ptr(n)
		r.Expectations = append(r.Expectations, results.ExpectationResult{Name: count, Want: ">0", Got: ptr(float64(n)), Verdict: results.Pass})
	}
	for _, count := range []string{"token_regressions", "lost_updates", "acknowledged_writes_lost", "units_oversold", "false_refusals"} {
		name(count, 1)
	}
	name("orphans", 3)
	r.Counts["double_grants"], r.Counts["overlapping_holds"] = ptr(int64(0)), ptr(int64(0))
	r.Measures["turned_away_share"] = ptr(0.41)
	r.Expectations = append(r.Expectations, results.ExpectationResult{Name: "turned_away_share", Want: ">0.2", Got: ptr(0.41), Verdict: results.Pass})
	final := history.Event{Kind: history.Final, Time: at(40)}
	effect := history.Event{Kind: history.EffectWrite, Phase: history.Fail, Code: history.CodeFenced, Time: at(16), User: history.MakeUser(1, 0), Grant: b.op}
	witness := func(count, kind string, e history.Event) results.Finding {
		return results.Finding{Checker: kind, Counts: map[string]*int64{count: ptr(int64(1)), kind: nil}, Witnesses: []results.Witness{
			{Kind: kind, Lock: "lock-0", From: at(5), To: e.Time, Text: "client-2/0 saw it at 16.123 ms", Events: []history.Event{e}},
		}}
	}
	r.Findings = []results.Finding{
		witness("token_regressions", "token_regression", effect), witness("lost_updates", "lost_update", final),
		witness("acknowledged_writes_lost", "lost_write", effect), witness("units_oversold", "oversold", final), witness("false_refusals", "false_refusal", effect),
		{Checker: "orphans", Counts: map[string]*int64{"orphans": ptr(int64(3))}},
	}
	s := synthetic{dir, r}
	var said bytes.Buffer
	must(t, Explain(&said, dir, r))
	head, rest, _ := strings.Cut(said.String(), "\n")
	if want := "1 token regression, 1 lost update, 1 acknowledged write lost, 1 unit oversold, 1 false refusal and 3 orphans; no double grant."; !strings.EqualFold(head, want) {
		t.Errorf("headline %q, want %q", head, want)
	}
	var drawn strings.Builder
	for _, m := range svgText.FindAllStringSubmatch(string(pictureOf(t, s)), -1) {
		drawn.WriteString(m[1] + " ")
	}
	for _, count := range []string{"token regression", "lost update", "acknowledged write lost", "unit oversold", "false refusal"} {
		for where, text := range map[string]string{"words": rest, "picture": drawn.String()} {
			if !strings.Contains(strings.ToLower(text), count) {
				t.Errorf("%s is not in the %s:\n%s", count, where, text)
			}
		}
	}
	if !strings.Contains(rest, "in all: 3 orphans and turned away share 0.410") || !strings.Contains(drawn.String(), "In all: 3 orphans") {
		t.Errorf("figures without a time are not told:\n%s\n%s", rest, drawn.String())
	}
	told := toldOf(t, s)
	if i := slices.IndexFunc(told.Marks, func(m story.Mark) bool { return m.Label == "1 lost update" }); i < 0 || told.Marks[i].Time != at(40) || told.Lanes[told.Marks[i].Lane].Kind != story.LaneResource {
		t.Errorf("a lost update stands at the final read: %+v", told.Marks)
	}
	if strings.Contains(said.String(), "client-2/0") || !strings.Contains(said.String(), "B saw it at 16.1 ms") {
		t.Errorf("users have the names of the steps:\n%s", &said)
	}
}

// TestSubjectOfAScenarioComesFirst: counts and measures in its own order before its expectations, and events with
// the weight of a count. If nothing was found, the first event is the headline.
func TestSubjectOfAScenarioComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.env.People = map[string]string{"A": "client-1"}
	a := w.acquire(history.MakeUser(0, 0), 1, 2, 7, 10_000)
	op := w.event(history.Event{Time: at(4), User: a.user, Kind: history.Renew, Phase: history.Invoke, Grant: a.op})
	w.event(history.Event{Time: at(5), User: a.user, Kind: history.Renew, Phase: history.Ok, Op: op, Grant: a.op, Valid: at(10_004)})
	w.release(a, 10, history.Ok, 0)
	dir := w.write(a)
	r := baseReport(w, dir)
	r.Counts["double_grants"], r.Counts["overlapping_holds"] = ptr(int64(0)), ptr(int64(0))
	weightOf := func() int {
		told := toldOf(t, synthetic{dir, r})
		return told.Marks[slices.IndexFunc(told.Marks, func(m story.Mark) bool { return m.Event == "renew ok" })].Weight
	}
	if title := toldOf(t, synthetic{dir, r}).Title; title != "No double grant" {
		t.Errorf("without a word on it: %q", title)
	}
	light := weightOf()
	r.About = []string{"renew ok", "orphans", "lost_updates"}
	r.Counts["lost_updates"], r.Counts["orphans"], r.Counts["fence_saves"] = ptr(int64(2)), ptr(int64(1)), ptr(int64(3))
	r.Expectations = []results.ExpectationResult{{Name: "fence_saves", Want: ">0", Got: ptr(3.0), Verdict: results.Pass}}
	if title := toldOf(t, synthetic{dir, r}).Title; title != "A renews lock-0; 1 orphan, 2 lost updates and 3 fence saves; no double grant" || weightOf() <= light {
		t.Errorf("about a renewal: %q, weight %d", title, weightOf())
	}
}

// TestACountWithoutAHoldIsDrawn next to two users at work at the time of its witness, if no hold, fault or handoff is
// to be shown. Without a lock no write there is late.
func TestACountWithoutAHoldIsDrawn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.env.NoLock, w.env.Lock, w.env.People = true, "none", nil
	var all []*grant
	for i, from := range []float64{1, 2, 500} {
		g := w.acquire(history.MakeUser(i, 0), from, from+1, 0, 0)
		w.access(g, history.Write, from+12-float64(i)*5, from+13-float64(i)*5, 7, history.Ok)
		w.release(g, from+20, history.Ok, 0)
		all = append(all, g)
	}
	dir := w.write(all...)
	r := baseReport(w, dir)
	r.NoLock, r.Latency = true, nil
	r.Counts = map[string]*int64{"repeated_work": ptr(int64(2))}
	r.Expectations = []results.ExpectationResult{{Name: "repeated_work", Want: ">0", Got: ptr(2.0), Verdict: results.Pass}}
	r.Findings = []results.Finding{{Checker: "once", Counts: r.Counts, Witnesses: []results.Witness{
		{Kind: "repeated_work", Lock: "lock-0", From: at(9), To: at(12), Text: "the work 7 was done twice"},
	}}}
	var said bytes.Buffer
	must(t, Explain(&said, dir, r))
	if text := said.String(); !strings.HasPrefix(text, "Repeated work 2.") || !strings.Contains(text, "the work 7 was done twice") ||
		!strings.Contains(text, "client-2 writes 7") || strings.Contains(text, "client-3") || strings.Contains(strings.ToLower(text), "stale") {
		t.Error(text)
	}
	drawn := strings.ToLower(strings.Join(svgText.FindAllString(string(pictureOf(t, synthetic{dir, r})), -1), " "))
	if !strings.Contains(drawn, "repeated work") || strings.Contains(drawn, "stale") {
		t.Error(drawn)
	}
}

// TestAStoryWithoutALock mentions users and accesses, and no grant, hold or validity.
func TestAStoryWithoutALock(t *testing.T) {
	w := newWorld(t, 2)
	w.env.People, w.env.NoLock, w.env.Lock = map[string]string{"A": "client-1", "B": "client-2"}, true, "none"
	a := w.acquire(history.MakeUser(0, 0), 1, 2, 0, 0)
	w.access(a, history.Read, 3, 3.5, 0, history.Ok)
	b := w.acquire(history.MakeUser(1, 0), 1.5, 2.5, 0, 0)
	w.access(b, history.Write, 5, 6, 1, history.Ok)
	w.access(a, history.Write, 7, 8, 2, history.Fail)
	w.release(a, 10, history.Ok, 0)
	w.release(b, 11, history.Ok, 0)
	dir := w.write(a, b)
	r := baseReport(w, dir)
	r.NoLock, r.Latency = true, nil
	for name := range r.Counts {
		r.Counts[name] = nil
	}
	r.Counts["guard_refusals"] = ptr(int64(1))
	r.Expectations = []results.ExpectationResult{{Name: "guard_refusals", Want: ">0", Got: ptr(1.0), Verdict: results.Pass}}
	var said, brief bytes.Buffer
	must(t, Explain(&said, dir, r))
	must(t, Text(&brief, r))
	drawn := string(pictureOf(t, synthetic{dir, r}))
	if !strings.HasPrefix(said.String(), "1 guard refusal") || !strings.Contains(brief.String(), "accesses") {
		t.Errorf("%s\n%s", &said, &brief)
	}
	for where, text := range map[string]string{"words": said.String(), "picture": strings.Join(svgText.FindAllString(drawn, -1), " "), "brief": brief.String()} {
		for _, word := range []string{"grant", "holds", "entitled", "validity", "overlap"} {
			if strings.Contains(text, word) {
				t.Errorf("the %s speak of %q:\n%s", where, word, text)
			}
		}
	}
}

// TestDeadUsersWithoutAnAnswer is named as dead, whether a fault killed it or it died at a point. For others the reason
// of the missing answer is unknown.
func TestDeadUsersWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		fault history.Fault
		seen  history.Observation
		want  string
	}{
		"nobody knows": {want: "client-1: acquire"},
		"killed": {
			fault: history.Fault{Name: "kill", Targets: []string{"client-1"}, Start: at(6), Traits: &history.Traits{Kills: true}},
			want:  "client-1: acquire: its process dies",
		},
		"killed before": {
			fault: history.Fault{Name: "kill", Targets: []string{"client-1"}, Start: at(4), Traits: &history.Traits{Kills: true}},
			want:  "client-1: acquire",
		},
		"another is killed": {
			fault: history.Fault{Name: "kill", Targets: []string{"client-2"}, Start: at(6), Traits: &history.Traits{Kills: true}},
			want:  "client-1: acquire",
		},
		"died at a point": {
			seen: history.Observation{By: history.ByPoint, Node: "client-1", Fact: "setnx-done", Answer: "died", Answered: at(6)},
			want: "client-1: acquire: its process dies",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.env.People = map[string]string{"one": "client-1", "two": "client-2"}
			w.event(history.Event{Time: at(5), User: history.MakeUser(0, 0), Kind: history.Acquire, Phase: history.Invoke})
			dir := w.write(w.acquire(history.MakeUser(1, 0), 11, 12, 3, 10_000))
			sc, err := scene.New(dir, baseReport(w, dir), w.env)
			must(t, err)
			if sc.Seen = []history.Observation{c.seen}; c.fault.Name != "" {
				sc.Faults = []history.Fault{c.fault}
			}
			got := lines(story.Tell(sc))
			if !slices.ContainsFunc(got, func(l string) bool { return strings.Replace(l, "one: ", "client-1: ", 1) == c.want }) {
				t.Errorf("no %q in %q", c.want, got)
			}
		})
	}
}
