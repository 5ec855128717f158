package story

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/scene"
)

// TestReasonOfAForeignRelease: both had the same value at the key, if the lock recorded the value.
func TestReasonOfAForeignRelease(t *testing.T) {
	t.Parallel()
	a, b := history.MakeUser(0, 0), history.MakeUser(1, 0)
	release := history.Event{Time: 10, Kind: history.Release, Phase: history.Invoke, User: a, Grant: 1}
	for name, c := range map[string]struct {
		from   int64 // of the witness
		theirs history.Event
		want   victim
	}{
		"the same":           {10, history.Event{Code: history.CauseOwnerValue, Value: 1700, Token: 1}, victim{"client-2", " (the value at the key is 1700-1 for both)"}},
		"other time":         {10, history.Event{Code: history.CauseOwnerValue, Value: 1701, Token: 1}, victim{"client-2", ""}},
		"other client":       {10, history.Event{Code: history.CauseOwnerValue, Value: 1700, Token: 2}, victim{"client-2", ""}},
		"other cause":        {10, history.Event{Code: history.CauseAnsweredBy, Value: 1700, Token: 1}, victim{"client-2", ""}},
		"of another release": {11, history.Event{Code: history.CauseOwnerValue, Value: 1700, Token: 1}, victim{}},
	} {
		sc := &scene.Scene{Reasons: scene.Reasons{}, Report: results.Report{Findings: []results.Finding{{
			Witnesses: []results.Witness{{Kind: "foreign_release", From: c.from, Holds: []results.HoldRef{{User: b, Grant: 2}}}},
		}}}}
		c.theirs.User, c.theirs.Op = b, 2
		for _, e := range []history.Event{{Code: history.CauseOwnerValue, Value: 1700, Token: 1, User: a, Op: 1}, c.theirs} {
			e.Kind = history.Reason
			sc.Reasons.Observe("client-1", &e)
		}
		if got := (lockMarker{scene: sc}).victim(release); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
