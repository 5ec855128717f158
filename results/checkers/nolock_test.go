package checkers

import (
	"testing"

	"github.com/lockquake/lockquake/results"
)

// TestWithoutALock: without a lock there are users and accesses, but no grants. Findings on grants are not judged;
// the harm at the resource is.
func TestWithoutALock(t *testing.T) {
	const script = overlapScript + "410 A effect-write fail conditional\n415 B effect-read fail fenced\n"
	without := func(d *runDir) { d.env.NoLock = true }
	r := judged(t, prepared(t, script, "expect: {guard_refusals: \"2\", judged: \">=5\"}\n", without))
	if r.Verdict != results.Pass {
		t.Errorf("%s: %q", r.Verdict, r.Reasons)
	}
	if n, what := r.Subject(); n != 5 || what != "access" || r.Judged.Grants != 0 || r.Judged.Entitled != 0 {
		t.Errorf("%d %s, %+v", n, what, r.Judged)
	}
	for _, k := range All() {
		for _, q := range append(k.Counts, k.Measures...) {
			if k.Grants && (r.Counts[q.Name] != nil || r.Measures[q.Name] != nil) {
				t.Errorf("%s is judged", q.Name)
			}
		}
	}
	for _, op := range results.Operations {
		if r.Latency[op].N != 0 {
			t.Errorf("%s was timed", op)
		}
	}
	if m := r.Measures["accesses_per_write"]; m != nil { // no write was acknowledged
		t.Errorf("accesses per write: %v", *m)
	}
	few := judged(t, prepared(t, script, "expect: {judged: \">=6\"}\n", without))
	if few.Verdict != results.Unknown || len(few.Reasons) == 0 {
		t.Errorf("%s: %q", few.Verdict, few.Reasons)
	}
}
