package results

import (
	"strconv"
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

// TestDelayCountsAsManyStandstillsAsSteps: many short standstills explain no long wait, and a long one explains its
// length, whoever saw it.
func TestDelayCountsAsManyStandstillsAsSteps(t *testing.T) {
	const ms = 1e6
	run := Run{End: 10_000 * ms}
	s := NewStandstills(run)
	stall := func(process string, from, until int64) {
		s.Observe(process, &history.Event{Kind: history.Stall, Time: until * ms, Value: (until - from) * ms})
	}
	for i := range int64(60) { // a busy machine
		stall("client-1", 1000+25*i, 1000+25*i+20)
	}
	stall("client-1", 4000, 4500)
	for i := range int64(maxSteps) { // all see the same freeze
		stall("client-"+strconv.FormatInt(i+2, 10), 4000+i, 4500)
	}
	stall("engine", 4600, 4650)
	only := func(name string) func(string) bool { return func(process string) bool { return process == name } }
	for _, c := range []struct {
		name        string
		from, until int64
		among       func(string) bool
		want        int64
	}{
		{"many short ones", 1000, 2500, AnyProcess, maxSteps * 20},
		{"a few short ones", 1000, 1100, AnyProcess, 4 * 20},
		{"a part of one", 1010, 1020, AnyProcess, 10},
		{"a long one that all saw, and another", 3000, 5000, AnyProcess, 500 + 50},
		{"those of one process", 3000, 5000, only("engine"), 50},
		{"none", 6000, 7000, AnyProcess, 0},
	} {
		if got := s.Delay(c.from*ms, c.until*ms, c.among); got != c.want*ms {
			t.Errorf("%s: %d ms, want %d", c.name, got/ms, c.want)
		}
	}
}
