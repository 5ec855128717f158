package results

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestBrokenAcquires: the most frequent error is named, except contention. Errors next to a fault are not reported.
func TestBrokenAcquires(t *testing.T) {
	d := &directory{env: Env{Clients: []ClientStats{
		{Errors: map[string]int64{"lock is held by another user: NX": 9, "compacted": 2}}, {Errors: map[string]int64{"compacted": 1, "reset": 2}},
	}}}
	some, none := map[string]*float64{AcquireErrors: new(3.0)}, map[string]*float64{AcquireErrors: new(0.0)}
	if got := d.brokenAcquires(some); len(got) != 1 || !strings.HasPrefix(got[0], "3 acquires ended in an error") || !strings.Contains(got[0], `"compacted" (3)`) {
		t.Errorf("%q", got)
	}
	if got := append(d.brokenAcquires(none), d.brokenAcquires(nil)...); got != nil {
		t.Errorf("without any: %q", got)
	}
	d.faults = []history.Fault{{}}
	if got := d.brokenAcquires(some); got != nil {
		t.Errorf("beside a fault: %q", got)
	}
}
