package checkers

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestLooksAreBounded has checkers look as often as a history needs, and less: then the finding says so, and nothing found is no answer.
func TestLooksAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		make  func(results.Run) results.Checker
		looks func(results.Checker) *looks
		found results.Verdict
	}{
		"untold losses": {`
run tells recovery=1000
0 A acquire invoke
10 A acquire ok valid=100 issued=1
200 B acquire invoke
210 B acquire ok valid=9000 issued=200
1300 C acquire invoke
`, newLateNews, func(c results.Checker) *looks { return &c.(*lateNews).looks }, results.Violated},
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
`, newWedges, func(c results.Checker) *looks { return &c.(*wedges).looks }, results.Violated},
		"unavailability": {`
run recovery=1000
fault partition on=A at=100 until=2000
200 A acquire invoke
2100 A acquire ok valid=9000 issued=200
`, newUnavailability, func(c results.Checker) *looks { return &c.(*unavailability).looks }, results.Clean},
	} {
		s, err := parseScript(c.text)
		if err != nil {
			t.Fatal(err)
		}
		judge := func(most int) (results.Finding, int) {
			s.run.Still = results.NewStandstills(s.run)
			x := c.make(s.run)
			if most >= 0 {
				c.looks(x).most = most
			}
			for _, e := range append([]history.Event(nil), s.events...) {
				x.Observe(&e)
			}
			return x.Finish(), c.looks(x).made
		}
		f, needs := judge(-1)
		if f.Verdict != c.found || len(f.Warnings) > 0 || needs == 0 {
			t.Errorf("%s: %s after %d looks, %q", name, f.Verdict, needs, f.Warnings)
		}
		if f, _ := judge(needs); f.Verdict != c.found || len(f.Warnings) > 0 {
			t.Errorf("%s: %s after as many looks as it needs, %q", name, f.Verdict, f.Warnings)
		}
		if f, _ := judge(0); f.Verdict != results.Unknown || len(f.Warnings) != 1 {
			t.Errorf("%s: %s without a look, %q", name, f.Verdict, f.Warnings)
		}
	}
}
