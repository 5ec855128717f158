package checkers

import (
	"reflect"
	"slices"
	"testing"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
)

// TestLooksAreBounded: with as many looks as a history needs nothing is left out. With fewer the finding says so, and
// a zero is no answer. Each history ends after each of its events in turn.
func TestLooksAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		make  func(results.Run) results.Checker
		looks func(results.Checker) *evidence.Looks
		last  bool   // it is the last look that finds something
		count string // the whole history counts one of it; "": it is clean
	}{
		"foreign releases": {`
0 A acquire invoke
10 A acquire ok valid=100 issued=1
120 B acquire invoke
130 B acquire ok valid=1030 issued=121
140 A release invoke
141 C acquire invoke
142 D acquire invoke
145 C acquire ok valid=1170 issued=142
146 D acquire ok valid=1170 issued=143
150 A release ok
`, newForeignReleases, func(c results.Checker) *evidence.Looks { return &c.(*foreignReleases).looks }, true, "foreign_releases"},
		"untold losses": {`
run tells recovery=1000
0 A acquire invoke
10 A acquire ok valid=100 issued=1
200 B acquire invoke
210 B acquire ok valid=9000 issued=200
1300 C acquire invoke
`, newLateNews, func(c results.Checker) *evidence.Looks { return &c.(*lateNews).looks }, false, "untold_losses"},
		"wedges": {`
run recovery=1000
fault partition on=A at=100 until=2000
2100 B acquire invoke
2110 B acquire ok valid=9000 issued=2100
2120 B release invoke
2130 B release ok
2200 A acquire invoke
4500 B acquire invoke
4510 B acquire ok valid=9000 issued=4500
4520 A acquire ok valid=9000 issued=2200
`, newWedges, func(c results.Checker) *evidence.Looks { return &c.(*wedges).looks }, false, "wedges"},
		"unavailability": {`
run recovery=1000
fault partition on=A at=100 until=2000
200 A acquire invoke
2100 A acquire ok valid=9000 issued=200
`, newUnavailability, func(c results.Checker) *evidence.Looks { return &c.(*unavailability).looks }, false, ""},
	} {
		s, err := parseScript(c.text)
		if err != nil {
			t.Fatal(err)
		}
		for events := range len(s.events) + 1 {
			judge := func(most int) (f results.Finding, used int) {
				s.run.Still = results.NewStandstills(s.run)
				x := c.make(s.run)
				if most >= 0 {
					c.looks(x).Most = most
				}
				seen := x
				if _, ok := x.(follower); ok {
					seen = followed(s.run, x)
				}
				for _, e := range slices.Clone(s.events[:events]) {
					seen.Observe(&e)
				}
				return seen.Finish(), c.looks(x).Made
			}
			want, needs := judge(-1)
			if f, _ := judge(needs); f.Verdict != want.Verdict || !reflect.DeepEqual(f.Counts, want.Counts) || len(want.Warnings)+len(f.Warnings) > 0 {
				t.Errorf("%s, %d events, as many looks as they need: %s, want %s: %q", name, events, f.Verdict, want.Verdict, f.Warnings)
			}
			for less := range needs {
				f, _ := judge(less)
				if len(f.Warnings) != 1 || f.Verdict != results.Unknown && (f.Verdict != results.Violated || less == 0 || c.last && less == needs-1) {
					t.Errorf("%s, %d events, %d looks where they need %d: %s, %q", name, events, less, needs, f.Verdict, f.Warnings)
				}
			}
			clean := want.Verdict == results.Clean && c.count == ""
			if n := want.Counts[c.count]; events == len(s.events) && (needs == 0 || !clean && (n == nil || *n != 1)) {
				t.Errorf("%s: %s after %d looks", name, want.Verdict, needs)
			}
		}
	}
}
