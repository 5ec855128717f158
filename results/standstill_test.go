package results

import (
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestSinceWhenAProcessStoodStill: time that a fault asked for is cut out of a stall, including at its ends. Time
// before the start does not count.
func TestSinceWhenAProcessStoodStill(t *testing.T) {
	if n := stoodUpTo(nil, 5); n != 0 {
		t.Errorf("a process without stalls stood still for %d ns", n)
	}
	type span struct{ from, until int64 }
	for _, c := range []struct {
		name          string
		pauses        []span
		stalls        []span
		asked         span
		since, length int64
	}{
		{"a pause in the middle", []span{{120, 150}}, []span{{100, 200}}, span{0, 1000}, 100, 70},
		{"a pause that began with the stall", []span{{100, 150}}, []span{{100, 200}}, span{0, 1000}, 150, 50},
		{"a pause that ended with the stall, and another stall", []span{{50, 200}}, []span{{100, 200}, {300, 350}}, span{0, 1000}, 300, 50},
		{"a stall that was over, and another one", nil, []span{{150, 200}, {300, 310}}, span{200, 1000}, 300, 10},
	} {
		run := Run{}
		for _, p := range c.pauses {
			run.Faults = append(run.Faults, history.Fault{Start: p.from, End: p.until, Targets: []string{"client-1"}, Traits: &history.Traits{Halts: true}})
		}
		s := NewStandstills(run)
		for _, x := range c.stalls {
			s.Observe("client-1", &history.Event{Kind: history.Stall, Time: x.until, Value: x.until - x.from})
		}
		if got, want := s.Worst(c.asked.from, c.asked.until), (Standstill{"client-1", c.length, c.since}); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}
