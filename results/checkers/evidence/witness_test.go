package evidence

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestAShortlistKeepsTheBest: those of the highest rank, of equal ones the first, and returns the best first, then
// the earliest.
func TestAShortlistKeepsTheBest(t *testing.T) {
	for _, c := range []struct {
		ranks []int // of proofs that come at 0, 1, 2, ...
		want  []int64
	}{
		{[]int{5}, []int64{0}},
		{[]int{3, 5, 4}, []int64{1, 2}},
		{[]int{5, 4, 1}, []int64{0, 1}},
		{[]int{5, 5, 5}, []int64{0, 1}},
		{[]int{4, 4, 5}, []int64{2, 0}},
		{[]int{5, 4, 4}, []int64{0, 1}},
	} {
		s := Shortlist{Room: 2}
		for i, rank := range c.ranks {
			s.Add(Proof{Rank: rank, From: int64(i), Text: func() string { return "" }})
		}
		var got []int64
		for _, w := range s.Witnesses(results.Run{}) {
			got = append(got, w.From)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of ranks %v it keeps those at %v, want %v", c.ranks, got, c.want)
		}
	}
}

// TestAWitnessNamesTheLock of its first event, if it has any.
func TestAWitnessNamesTheLock(t *testing.T) {
	run, text := results.Run{Locks: []string{"lock-0", "lock-1"}}, func() string { return "" }
	var s Shortlist
	for i, events := range [][]history.Event{nil, {{Time: 9, Lock: 0}, {Time: 8, Lock: 1}}} {
		s.Add(Proof{Rank: -i, Text: text, Events: events})
	}
	if ws := s.Witnesses(run); ws[0].Lock != "" || ws[1].Lock != "lock-1" {
		t.Errorf("%q and %q", ws[0].Lock, ws[1].Lock)
	}
}
