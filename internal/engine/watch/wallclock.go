package watch

import (
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/results"
)

const (
	// clockStep is the smallest move of the wall clock between two looks that counts as a step. It is less than the
	// drift that locks allow for a TTL of a second, and more than slewing does within a beat.
	clockStep = 10 * time.Millisecond
	// clockSlew is the smallest move since the last step, or since the start, that counts as one. Slewing by the usual
	// 500 ppm takes 100 s for it; by 10 %, as chrony may, half a second.
	clockSlew = 50 * time.Millisecond
	// clockTries is how often the clocks are read again when the thread was interrupted between two readings.
	clockTries = 3
)

// WallClock finds moves of the machine's wall clock against its monotonic one: servers that end grants by the wall
// clock then end them at the wrong time. A suspended machine shows as a move too, since only its wall clock goes on.
// Clock faults do not: they move what their targets read, not the machine's clocks.
type WallClock struct {
	read  func() clock.Reading
	last  offset // at the last look
	told  offset // at the last step, or at the start
	Steps []results.ClockStep
}

// offset is wall clock less monotonic clock, to within width.
type offset struct{ ns, width int64 }

// NewWallClock begins to watch.
func NewWallClock(read func() clock.Reading) *WallClock {
	w := &WallClock{read: read}
	w.last, _ = w.measure()
	w.told = w.last
	return w
}

// measure takes the narrowest of some looks.
func (w *WallClock) measure() (best offset, at int64) {
	for i := range clockTries {
		r := w.read()
		half := (r.After - r.Before + 1) / 2
		if i == 0 || half < best.width {
			best, at = offset{ns: r.Wall - r.Before - half, width: half}, r.After
		}
		if best.width < int64(clockStep)/10 {
			break
		}
	}
	return best, at
}

// Look compares the clocks with how they stood at the last look and when a step was last told.
func (w *WallClock) Look() {
	now, at := w.measure()
	if now.moved(w.last, clockStep) || now.moved(w.told, clockSlew) {
		w.Steps = append(w.Steps, results.ClockStep{Time: at, By: now.ns - w.told.ns})
		w.told = now
	}
	w.last = now
}

// moved tells whether two offsets differ by more than a limit, whatever the widths hide.
func (o offset) moved(from offset, limit time.Duration) bool {
	by := max(o.ns-from.ns, from.ns-o.ns)
	return by-o.width-from.width > int64(limit)
}
