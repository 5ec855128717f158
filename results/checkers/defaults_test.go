package checkers

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/results"
)

// TestAPassHidesNoHarm judges a paused holder's stale write. It fails if the scenario does not name the count, and
// the run's record decides which defaults apply.
func TestAPassHidesNoHarm(t *testing.T) {
	for name, c := range map[string]struct {
		expect    string
		zeros     []string
		want      results.Verdict
		reason    string
		uncovered string
	}{
		"nobody asked":       {`double_grants: "0"`, All().MustBeZero(), results.Fail, "stale_writes 0: found 1", "overlapping_holds 1"},
		"named":              {`double_grants: "0", stale_writes: ">=0"`, All().MustBeZero(), results.Pass, "", "overlapping_holds 1"},
		"all named":          {`overlapping_holds: ">0", stale_writes: ">=0"`, All().MustBeZero(), results.Pass, "", ""},
		"another is named":   {`lost_updates: ">=0"`, All().MustBeZero(), results.Fail, "stale_writes 0: found 1", "overlapping_holds 1"},
		"by older releases":  {`double_grants: "0"`, nil, results.Pass, "", "overlapping_holds 1, stale_writes 1"},
		"by a later release": {`double_grants: "0"`, []string{"overlapping_holds"}, results.Fail, "overlapping_holds 0: found 1", "stale_writes 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := judged(t, prepared(t, overlapScript, pauseOnHolder+"expect: {"+c.expect+", judged: \">=1\"}\n", func(d *runDir) {
				d.env.MustBeZero = c.zeros
			}))
			if r.Verdict != c.want || r.Uncovered.String() != c.uncovered || !strings.Contains(strings.Join(r.Reasons, "\n"), c.reason) {
				t.Errorf("%s by %q, beside: %q", r.Verdict, r.Reasons, r.Uncovered)
			}
		})
	}
}

// TestAStandstillExcusesADefault: if only a process that stood still explains the harm, the run is unknown.
func TestAStandstillExcusesADefault(t *testing.T) {
	late := strings.Replace(lateScript, "300 A stall info issued=130\n", "300 A stall info issued=130\n305 A effect-write ok value=1\n", 1)
	r := judged(t, prepared(t, late, enough, func(d *runDir) { d.env.MustBeZero = All().MustBeZero() }))
	if r.Verdict != results.Unknown || !strings.Contains(strings.Join(r.Reasons, "\n"), "stale_writes 0 (found 1)") {
		t.Errorf("%s: %q, %v", r.Verdict, r.Reasons, r.Counts["stale_writes"])
	}
}
