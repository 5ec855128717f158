package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/story"
)

// Of three handoffs of a contended lock, the one of median length is drawn: from the release to the next grant, with
// the users waiting meanwhile.
func TestAHandoffIsDrawn(t *testing.T) {
	w := newWorld(t, 2)
	var last *grant
	for i, times := range [][2]float64{{0, 50}, {100, 101}, {200, 240}, {300, 320}} { // a release and the grant after it
		if last != nil {
			w.release(last, times[0], history.Ok, 0)
		}
		last = w.acquire(history.MakeUser(i%2, i), float64(i)+1, times[1], uint64(10+i), 60_000)
	}
	w.event(history.Event{Time: at(5), User: history.MakeUser(0, 7), Kind: history.Acquire, Phase: history.Invoke})
	dir := w.write()
	r := baseReport(w, dir)
	if told, err := story.Of(dir, r, w.env); err != nil || told != nil {
		t.Fatalf("where nobody counted who was woken nothing is told: %v, %v", told, err)
	}
	r.Measures["wakeups_per_handoff"], r.Measures["requests_per_handoff"] = ptr(156.4), ptr(9.72)
	s := synthetic{dir, r}
	pictureOf(t, s)
	told := toldOf(t, s)
	h := sceneOf(t, s).Handoff
	if h == nil || h.Released != at(300) || h.Long() != 20*ms || h.Waiting != 2 {
		t.Fatalf("%+v", h)
	}
	if waits := slices.IndexFunc(told.Marks, func(m story.Mark) bool { return m.Label == "acquire, and waits" }); waits < 0 || len(told.Lanes) != 4 {
		t.Errorf("who waits is not drawn: %+v", told.Lanes)
	}
	if len(told.Holds) != 2 || told.Lanes[0].Name != "client-1/2" {
		t.Errorf("%d holds, %+v", len(told.Holds), told.Lanes)
	}
	text := strings.Join(told.Explain(), "\n")
	for _, want := range []string{
		"A handoff, while 2 wait: 20 ms; no double grant.",
		"2 users wait for lock-0; on average a handoff wakes 156 of them and costs the servers 9.72 requests",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not told:\n%s", want, text)
		}
	}
	r.Findings = []results.Finding{{Witnesses: []results.Witness{{Kind: "overlapping_hold", Lock: "lock-0", Holds: []results.HoldRef{told.Holds[0].Ref}}}}}
	if worse := sceneOf(t, synthetic{dir, r}); worse.Handoff != nil {
		t.Error("what was found is told first")
	}
}

// Two users of one client have different names.
func TestUsersOfOneClientHaveNames(t *testing.T) {
	w := newWorld(t, 1)
	a := w.acquire(history.MakeUser(0, 3), 1, 2, 1, 60_000)
	w.release(a, 10, history.Ok, 0)
	w.acquire(history.MakeUser(0, 4), 3, 20, 2, 60_000)
	dir := w.write()
	r := baseReport(w, dir)
	r.Measures["wakeups_per_handoff"] = ptr(1.0)
	told := toldOf(t, synthetic{dir, r})
	if a, b := told.Lanes[0], told.Lanes[len(told.Lanes)-1]; a.Name != "client-1/3" || b.Name != "client-1/4" || a.Sub != "user 3" {
		t.Errorf("%+v", told.Lanes)
	}
}
