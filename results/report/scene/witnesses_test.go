package scene

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestTheCauseIsDrawn: of several double grants the one whose cause the judge found is drawn, with the holder that
// released another user's lock.
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
	if !ok || cause == nil || !Same(w.Holds[0], b) || !Same(cause.Holds[2], a) {
		t.Errorf("%+v because of %+v", w, cause)
	}
	r.Findings = r.Findings[:1]
	if w, cause, ok := choose(r); !ok || cause != nil || w.Holds[0].Grant != 9 {
		t.Errorf("%+v because of %+v", w, cause)
	}
}

func TestChooseTakesTheWorst(t *testing.T) {
	hold := []results.HoldRef{{Grant: 1}}
	r := results.Report{}
	for _, kind := range []string{"overlapping_hold", "fence_save", "stale_write", "double_grant"} {
		r.Findings = append(r.Findings, results.Finding{Witnesses: []results.Witness{{Kind: kind, Holds: hold}}})
		if w, _, _ := choose(r); w.Kind != kind {
			t.Errorf("chose %q over %q", w.Kind, kind)
		}
	}
}
