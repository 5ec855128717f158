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
