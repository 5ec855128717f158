package report

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestTheCauseIsDrawn: of several double grants the one is drawn whose cause the judge found, with the holder who released what was another's.
func TestTheCauseIsDrawn(t *testing.T) {
	hold := func(client int, grant uint32) results.HoldRef {
		return results.HoldRef{User: history.MakeUser(client, 0), Grant: grant}
	}
	twice := func(a, b results.HoldRef) results.Witness {
		return results.Witness{Kind: "double_grant", Lock: "lock-0", Holds: []results.HoldRef{a, b}}
	}
	a, b, c := hold(0, 1), hold(1, 2), hold(2, 3)
	freed := results.Witness{Kind: "foreign_release", Lock: "lock-0", Holds: []results.HoldRef{b, c, a}}
	r := results.Report{Findings: []results.Finding{
		{Checker: "exclusion", Witnesses: []results.Witness{twice(hold(0, 9), hold(1, 9)), twice(b, c)}},
		{Checker: "foreign_releases", Witnesses: []results.Witness{freed}},
	}}
	w, cause, ok := choose(r)
	if !ok || cause == nil || !same(w.Holds[0], b) || !same(cause.Holds[2], a) {
		t.Errorf("%+v because of %+v", w, cause)
	}
	r.Findings = r.Findings[:1]
	if w, cause, ok := choose(r); !ok || cause != nil || w.Holds[0].Grant != 9 {
		t.Errorf("%+v because of %+v", w, cause)
	}
}

// TestWhyAReleaseFreedAnothersLock: the two had the same value at the key, where the lock recorded what it is.
func TestWhyAReleaseFreedAnothersLock(t *testing.T) {
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
		sc := &scene{reasons: recordedReasons{}, report: results.Report{Findings: []results.Finding{{
			Witnesses: []results.Witness{{Kind: "foreign_release", From: c.from, Holds: []results.HoldRef{{User: b, Grant: 2}}}},
		}}}}
		c.theirs.User, c.theirs.Op = b, 2
		for _, e := range []history.Event{{Code: history.CauseOwnerValue, Value: 1700, Token: 1, User: a, Op: 1}, c.theirs} {
			e.Kind = history.Reason
			sc.reasons.observe("client-1", &e)
		}
		if got := (lockMarker{scene: sc}).victim(release); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
