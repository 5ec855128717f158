package wire

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// RemoteClock is the monotonic clock of a process beyond a stream: of a client, a resource or an agent. Until it is
// measured it is taken for the run's clock. After that, all measurements so far convert its times to the run's.
type RemoteClock struct {
	name      string
	ask       func(ctx context.Context) (now int64, err error)
	measuring sync.Mutex

	mu       sync.Mutex
	measured []history.Measurement
	line     *history.Clock // nil: it is the run's
}

// NewRemoteClock returns the clock of the named process. ask reads it once.
func NewRemoteClock(name string, ask func(ctx context.Context) (now int64, err error)) *RemoteClock {
	return &RemoteClock{name: name, ask: ask}
}

// SameClock reports whether a process shares CLOCK_MONOTONIC with this one, according to its hello.
func SameClock(bootID, timeNS string) bool {
	return bootID != "" && bootID == clock.BootID() && timeNS == clock.TimeNamespace()
}

// questions is how often a clock is read in one measurement; the quickest answer counts.
const questions = 30

// Measure compares the clock with the run's. The clock was read within the time of the quickest answer, which thus
// bounds the error. If a question gets no answer, the measurement fails.
func (c *RemoteClock) Measure(ctx context.Context) (history.Measurement, error) {
	c.measuring.Lock()
	defer c.measuring.Unlock()
	best := history.Measurement{Process: c.name, ErrorNS: int64(time.Hour)}
	for range questions {
		asked := clock.Now()
		now, err := c.ask(ctx)
		if err != nil {
			return best, fmt.Errorf("%s: clock: %w", c.name, err)
		}
		if half := (clock.Now() - asked + 1) / 2; half < best.ErrorNS {
			best.At, best.OffsetNS, best.ErrorNS = now, asked+half-now, half
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	measured := slices.Concat(c.measured, []history.Measurement{best})
	line, err := history.NewClock(measured)
	if err != nil {
		return best, fmt.Errorf("%s: clock: %w", c.name, err)
	}
	c.measured, c.line = measured, line
	return best, nil
}

// Separate reports whether the clock was measured: it is another clock than the run's, or may be.
func (c *RemoteClock) Separate() bool { return c.now() != nil }

// Stepped says how the measurements contradict each other: the clock was set, or stood still, and its times prove
// nothing. It returns "" if they do not.
func (c *RemoteClock) Stepped() string {
	line := c.now()
	if line == nil || line.Step() == nil {
		return ""
	}
	return fmt.Sprintf("%s: its clock was set or stood still: it moved by more than %d ppm against the run's clock between two measurements, so its times prove nothing",
		c.name, 1_000_000/history.RateShare)
}

// Run converts a time of the clock to the run's clock.
func (c *RemoteClock) Run(own int64) int64 {
	if line := c.now(); line != nil {
		return line.Run(own)
	}
	return own
}

// Own converts a time of the run's clock to this clock.
func (c *RemoteClock) Own(run int64) int64 {
	if line := c.now(); line != nil {
		return line.Own(run)
	}
	return run
}

// Error returns the largest error of a time returned by Run, in ns.
func (c *RemoteClock) Error(run int64) int64 {
	if line := c.now(); line != nil {
		return line.Error(run)
	}
	return 0
}

// now returns the line through the measurements so far, or nil.
func (c *RemoteClock) now() *history.Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}
