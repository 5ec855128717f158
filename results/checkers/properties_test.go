package checkers

import (
	"testing"

	"github.com/lockquake/lockquake/results"
)

// TestPropertiesDecideNothing: the answers of a run to what its scenario asks about the lock leave the verdict alone.
func TestPropertiesDecideNothing(t *testing.T) {
	const asked = enough + "properties: {waits: {longest_wait_ms: \">5ms\"}, waits long: {longest_wait_ms: \">1s\"}, screws: {loose_screws: \">0\"}}\n"
	r := judged(t, prepared(t, serialScript, asked, nil))
	if r.Verdict != results.Pass || len(r.Properties) != 3 {
		t.Fatalf("%s, %+v", r.Verdict, r.Properties)
	}
	for i, want := range []string{"waits: yes", "waits long: no", "screws: unknown (there is no such count or measure)"} {
		if got := r.Properties[i].String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if p := judged(t, prepared(t, serialScript, asked, func(d *runDir) { d.env.Interrupted = true })).Properties[0]; p.Answer != "unknown" {
		t.Errorf("a run that was cut short answers %s", p)
	}
}
