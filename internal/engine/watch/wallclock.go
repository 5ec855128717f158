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
	// clockSlew is the smallest move since the last step, or since the start, that counts as one. Slewing reaches it
	// in 100 s at the usual 500 ppm, and in half a second at 10 %, as chrony may do.
	clockSlew = 50 * time.Millisecond
	// clockTries is how often the clocks are read again if the thread was interrupted between two readings.
	clockTries = 3
)

// WallClock finds moves of the machine's wall clock against its monotonic one: servers that end grants by the wall
// clock then end them at the wrong time. A suspended machine shows as a move too, since only its wall clock
// continues. Clock faults do not: they change what their targets read, not the machine's clocks.
type WallClock struct {
	read  func() clock.Reading
	last  offset // at the last look
	told  offset // at the last step, or at the start
	Steps []results.ClockStep
}

// offset is wall clock minus monotonic clock, with an uncertainty of width.
type offset struct{ ns, width int64 }

// NewWallClock begins to watch.
func NewWallClock(read func() clock.Reading) *WallClock {
	w := &WallClock{read: read}
	w.last, _ = w.measure()
	w.told = w.last
	return w
}

// measure returns the narrowest of some readings.
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

// Look compares the clocks with their offset at the last look and at the last reported step.
func (w *WallClock) Look() {
	now, at := w.measure()
	if now.moved(w.last, clockStep) || now.moved(w.told, clockSlew) {
		w.Steps = append(w.Steps, results.ClockStep{Time: at, By: now.ns - w.told.ns})
		w.told = now
	}
	w.last = now
}

// moved reports whether two offsets differ by more than a limit, whatever the widths hide.
func (o offset) moved(from offset, limit time.Duration) bool {
	by := max(o.ns-from.ns, from.ns-o.ns)
	return by-o.width-from.width > int64(limit)
}
