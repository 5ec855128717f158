package served

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestAcquiresThatEndAtTheirDeadline: a warning appears if at least half of the acquires give up, unless a fault was
// planned.
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

// TestAcquiresThatAnErrorEnded: contention is no error, nor is the end of a wait or of the run.
func TestAcquiresThatAnErrorEnded(t *testing.T) {
	for _, c := range []struct {
		name  string
		phase history.Phase
		code  uint8
		at    int64 // the deadline is 100
		want  float64
	}{
		{"granted", history.Ok, history.CodeNone, 20, 0},
		{"contended", history.Fail, history.CodeContended, 20, 0},
		{"contended, and given up", history.Fail, history.CodeContended, 100, 0},
		{"refused", history.Fail, history.CodeUnavailable, 20, 1},
		{"the session was lost", history.Fail, history.CodeLost, 20, 1},
		{"no connection", history.Info, history.CodeConnection, 120, 1},
		{"no answer", history.Info, history.CodeTimeout, 20, 1},
		{"no answer until the deadline", history.Info, history.CodeTimeout, 100, 0},
		{"told to stop", history.Info, history.CodeCancelled, 20, 0},
		{"an error without a class", history.Fail, history.CodeNone, 20, 0},
	} {
		checker := newThroughput(results.Run{Start: 0, End: 1000})
		checker.Observe(&history.Event{Kind: history.Acquire, Phase: history.Invoke, Time: 10, Valid: 100})
		checker.Observe(&history.Event{Kind: history.Acquire, Phase: c.phase, Code: c.code, Time: c.at})
		if got := checker.Finish().Measures[results.AcquireErrors]; got == nil || *got != c.want {
			t.Errorf("%s: %v acquires, want %v", c.name, got, c.want)
		}
	}
}
