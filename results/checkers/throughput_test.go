package checkers

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestAcquiresThatEndAtTheirDeadline: half of the acquires or more that give up are worth a warning, unless a fault was planned.
func TestAcquiresThatEndAtTheirDeadline(t *testing.T) {
	for _, c := range []struct {
		name                   string
		granted, refused, gave int
		told                   bool // users have a deadline
		faults                 []history.Fault
		warned                 bool
	}{
		{"half of them", 1, 1, 2, true, nil, true},
		{"fewer", 1, 2, 2, true, nil, false},
		{"beside a fault", 0, 0, 2, true, []history.Fault{{}}, false},
		{"without a deadline", 0, 0, 2, false, nil, false},
		{"refused before it", 0, 4, 0, true, nil, false},
	} {
		checker := newThroughput(results.Run{Start: 0, End: 1000, Faults: c.faults})
		ask := func(n int, phase history.Phase, after int64) {
			for range n {
				e := history.Event{Kind: history.Acquire, Phase: history.Invoke, Time: 100}
				if c.told {
					e.Valid = 110
				}
				checker.Observe(&e)
				checker.Observe(&history.Event{Kind: history.Acquire, Phase: phase, Time: 100 + after})
			}
		}
		ask(c.granted, history.Ok, 20)
		ask(c.refused, history.Fail, 9)
		ask(c.gave, history.Fail, 10)
		f := checker.Finish()
		if warned := len(f.Warnings) == 1 && strings.Contains(f.Warnings[0], "ended at their deadline"); warned != c.warned {
			t.Errorf("%s: warnings %q", c.name, f.Warnings)
		}
	}
}
