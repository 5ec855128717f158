package report

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/scene"
)

// TestALongStoryIsNotDrawnWhole has users named by steps that do more than a picture can show.
func TestALongStoryIsNotDrawnWhole(t *testing.T) {
	for cycles, whole := range map[int]bool{10: true, scene.MaxStory / 3: false} {
		w := newWorld(t, 2)
		w.env.People = map[string]string{"A": "client-1", "B": "client-2"}
		w.cycles(0, 100, 160+55*float64(cycles))
		a := w.acquire(history.MakeUser(1, 0), 5, 6, 7, 1)
		w.release(a, 90, history.Ok, 0)
		dir := w.write(a)
		r := baseReport(w, dir)
		r.Findings = []results.Finding{{Checker: "exclusion", Verdict: results.Violated, Witnesses: []results.Witness{{
			Kind: "overlapping_hold", Lock: "lock-0", From: at(6), To: at(90), Holds: []results.HoldRef{a.ref},
		}}}}
		sc, err := scene.New(dir, r, w.env)
		if err != nil || sc == nil || sc.Whole != whole || len(sc.Events) > scene.MaxStory {
			t.Errorf("%d cycles: %v, a scene %t, of the whole story %t", cycles, err, sc != nil, sc != nil && sc.Whole)
		}
	}
}

// TestTheMiddleOfALongHoldIsNotDrawn has a hold with more accesses than a picture can show.
func TestTheMiddleOfALongHoldIsNotDrawn(t *testing.T) {
	w := newWorld(t, 1)
	a := w.acquire(history.MakeUser(0, 0), 1, 2, 7, 10_000)
	for i := range 2 * scene.MaxStory {
		w.access(a, history.Read, 3+float64(i), 3.2+float64(i), int64(i), history.Ok)
	}
	w.access(a, history.Write, 5000, 5001, 42, history.Ok)
	w.release(a, 5002, history.Ok, 0)
	dir := w.write(a)
	r := baseReport(w, dir)
	r.Findings = []results.Finding{{Checker: "stale", Verdict: results.Violated, Witnesses: []results.Witness{{
		Kind: "overlapping_hold", Lock: "lock-0", From: at(2), To: at(5001), Holds: []results.HoldRef{a.ref},
	}}}}
	sc, err := scene.New(dir, r, w.env)
	if err != nil || sc == nil {
		t.Fatal(sc != nil, err)
	}
	last := sc.Events[len(sc.Events)-3]
	if n := len(sc.Events); n > scene.MaxStory+10 || n < scene.MaxStory || last.Kind != history.Write || last.Value != 42 {
		t.Errorf("%d events, and before the release %+v", n, last)
	}
}
