package clock

import (
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// A program with whole milliseconds shows a clock that nearly stands still as one that stands still.
func TestRateOfAClockInWholeMilliseconds(t *testing.T) {
	t.Parallel()
	const apart = int64(500 * time.Millisecond)
	read := func(ns, at int64) stamp {
		return stamp{chaos.ClockReading{Shown: time.Unix(1_000_000_000, ns), FromMono: at, ToMono: at}}
	}
	for _, c := range []struct {
		name      string
		from, to  int64 // what it shows, in ns of one second
		low, high float64
	}{
		{"whole milliseconds, still", 7_000_000, 7_000_000, -0.002, 0.002},
		{"whole milliseconds, running", 7_000_000, 507_000_000, 0.998, 1.002},
		{"nanoseconds, still", 7_000_001, 7_000_001, 0, 0},
		{"nanoseconds, running", 7_000_001, 507_000_000, 0.999999998, 0.999999998},
	} {
		low, high := rate(read(c.from, 0), read(c.to, apart))
		if low != c.low || high != c.high {
			t.Errorf("%s: %v to %v, want %v to %v", c.name, low, high, c.low, c.high)
		}
	}
}
