package watch

import (
	"slices"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/results"
)

// TestStepsOfTheWallClockAreReported steps and slews a wall clock, and interrupts readings of it.
func TestStepsOfTheWallClockAreReported(t *testing.T) {
	t.Parallel()
	const ms = int64(time.Millisecond)
	type look struct {
		by    int64 // the wall clock moves before it
		takes int64 // between its readings
		later int64 // the wall clock was read this long before the middle
		once  bool  // that holds only for its first reading
	}
	slew := slices.Repeat([]look{{by: 3 * ms}}, 40)
	for _, c := range []struct {
		name  string
		looks []look
		want  []int64 // the size of each reported step
	}{
		{"nothing", slices.Repeat([]look{{}}, 100), nil},
		{"no more than 10 ms", []look{{by: 10 * ms}, {}, {by: -10 * ms}}, nil},
		{"forward and back", []look{{}, {by: 11 * ms}, {}, {by: -3600_000 * ms}, {}}, []int64{11 * ms, -3600_000 * ms}},
		{"two at once", []look{{by: 20 * ms}, {by: 20 * ms}}, []int64{20 * ms, 20 * ms}},
		{"slewed", slew, []int64{51 * ms, 51 * ms}},
		{"slewed, then stepped", append(slew[:10:10], look{by: 100 * ms}), []int64{130 * ms}},
		{"an interrupted look", []look{{takes: 100 * ms, later: 49 * ms}, {}}, nil},
		{"a step at a look that was interrupted once", []look{{by: 20 * ms, takes: 100 * ms, later: 49 * ms, once: true}}, []int64{20 * ms}},
		{"a step beyond an interrupted look", []look{{by: 200 * ms, takes: 100 * ms, later: -49 * ms}}, []int64{249 * ms}},
	} {
		now, wall, next := int64(1e15), int64(7e17), look{}
		w := NewWallClock(func() clock.Reading {
			r := clock.Reading{Before: now, Wall: wall + now + next.takes/2 - next.later, After: now + next.takes}
			now += next.takes
			if next.once {
				next.takes, next.later = 0, 0
			}
			return r
		})
		var got []int64
		for _, l := range c.looks {
			now, wall, next = now+10*ms, wall+l.by, l
			w.Look()
		}
		last := int64(0)
		for _, s := range w.Steps {
			if s.Time <= last || s.Time > now {
				t.Errorf("%s: a step is told at %d after %d, it is %d", c.name, s.Time, last, now)
			}
			last, got = s.Time, append(got, s.By)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: steps by %v are told, should be %v", c.name, got, c.want)
		}
	}
}

// TestTheRealClocksAreRead finds no step in a machine's clocks that nobody sets.
func TestTheRealClocksAreRead(t *testing.T) {
	t.Parallel()
	r := clock.Read()
	if r.Before <= 0 || r.After < r.Before || time.Since(time.Unix(0, r.Wall)).Abs() > time.Minute {
		t.Errorf("read %+v", r)
	}
	var none []results.ClockStep
	w := NewWallClock(clock.Read)
	w.Look()
	if !slices.Equal(w.Steps, none) {
		t.Errorf("told %+v", w.Steps)
	}
}
