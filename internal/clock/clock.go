// Package clock is the one time base of a run: the host's CLOCK_MONOTONIC in nanoseconds, which all processes and
// containers of one kernel share and which no clock fault moves.
package clock

import (
	"os"
	"strings"
	"time"
)

// base ties Go's monotonic reading to the host's clock. Both are CLOCK_MONOTONIC on Linux, so the offset is constant.
var base = calibrate()

type pair struct {
	mono int64
	wall time.Time
}

// simulated tells that Now reads Go's own clock.
var simulated bool

// Simulate makes Now read Go's own clock from here on, which a bubble of testing/synctest stops while anything in it
// runs. It is for the TestMain of a package whose tests use such bubbles, and stands here because the one time base has
// no other way in. Bubbles begin in the year 2000, so the times of Now count from 1970 then.
func Simulate() {
	simulated = true
	t := time.Now()
	base = pair{mono: t.UnixNano(), wall: t}
	zero = Time(0)
}

// Now returns the host's CLOCK_MONOTONIC in nanoseconds. Off Linux no clock is shared with the nodes: there it counts
// from the start of this process, and the difference to theirs has to be measured.
func Now() int64 {
	if simulated {
		return Mono()
	}
	return now()
}

// calibrate reads both clocks in a bracket, some times over, and keeps the narrowest.
func calibrate() pair {
	best, width := pair{}, int64(1)<<62
	for range 32 {
		before := now()
		t := time.Now()
		after := now()
		if after-before < width {
			width = after - before
			best = pair{mono: before + (after-before)/2, wall: t}
		}
	}
	return best
}

// Of returns the host's CLOCK_MONOTONIC, in nanoseconds, at t. A t without monotonic reading is converted by the wall
// clock and moves with it.
func Of(t time.Time) int64 {
	own := base.mono + int64(t.Sub(base.wall))
	if stopped.follows.Load() {
		look(Now, Mono)
		own += behindAt(own)
	}
	return own
}

// Time returns the time.Time, with monotonic reading, at mono nanoseconds of the host's CLOCK_MONOTONIC.
func Time(mono int64) time.Time { return base.wall.Add(time.Duration(mono - base.mono)) }

// began is when this package was initialised: the best guess where the kernel does not tell more.
var began = now()

// ProcessStart returns when this process began, on the clock of Now, to a hundredth of a second.
func ProcessStart() int64 {
	if at, ok := startedByKernel(); ok && at < began {
		return at
	}
	return began
}

// BootID returns the kernel's random boot id, or "" where there is none. Two processes with the same boot id and the
// same time namespace share Now.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// TimeNamespace returns the name of the calling process's time namespace, or "" where the kernel has none.
func TimeNamespace() string {
	s, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return ""
	}
	return s
}

// zero is the moment at which CLOCK_MONOTONIC was zero.
var zero = Time(0)

// Mono returns the host's CLOCK_MONOTONIC as Go's own time package reads it: by the vDSO, which takes a tenth of the
// system call that Now makes. The two differ by the error of a calibration, unless somebody moved what the vDSO tells.
func Mono() int64 { return int64(time.Since(zero)) }

// Reading is one look at the machine's wall clock, ns since 1970, between two at Now.
type Reading struct{ Before, Wall, After int64 }

// Read looks at the machine's clocks.
func Read() Reading {
	before := Now()
	wall := wallNow()
	return Reading{Before: before, Wall: wall, After: Now()}
}

// Wall returns this machine's wall clock, for faults that move another's. Nothing of a run is timed by it.
func Wall() time.Time { return time.Now().Round(0) }
