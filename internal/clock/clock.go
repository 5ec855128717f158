// Package clock has the time base of a run: the host's CLOCK_MONOTONIC in nanoseconds. All processes and containers of
// one kernel share it, and no clock fault moves it.
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

// simulated means that Now reads Go's own clock.
var simulated bool

// Simulate makes Now read Go's own clock from now on, which a testing/synctest bubble stops while anything in it runs.
// It is for the TestMain of a package whose tests use such bubbles, and is exported because there is no other way to
// replace the time base. Bubbles begin in the year 2000; with Simulate, Now counts from 1970.
func Simulate() {
	simulated = true
	t := time.Now()
	base = pair{mono: t.UnixNano(), wall: t}
	zero = Time(0)
}

// Now returns the host's CLOCK_MONOTONIC in nanoseconds. Outside Linux no clock is shared with the nodes: there Now
// counts from the start of this process, and the offset to the nodes' clocks must be measured.
func Now() int64 {
	if simulated {
		return Mono()
	}
	return now()
}

// calibrate reads one clock between two readings of the other, several times, and keeps the narrowest bracket.
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

// Of returns the host's CLOCK_MONOTONIC at t, in nanoseconds. A t without monotonic reading is converted by the wall
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

// began is when this package was initialised: the best guess if the kernel does not report the start.
var began = now()

// ProcessStart returns when this process started, on the clock of Now, with a resolution of 10 ms.
func ProcessStart() int64 {
	if at, ok := startedByKernel(); ok && at < began {
		return at
	}
	return began
}

// BootID returns the kernel's random boot id, or "" if there is none. Two processes with the same boot id and the same
// time namespace share Now.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// TimeNamespace returns the name of the calling process's time namespace, or "" if the kernel has none.
func TimeNamespace() string {
	s, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return ""
	}
	return s
}

// zero is the moment at which CLOCK_MONOTONIC was zero.
var zero = Time(0)

// Mono returns the host's CLOCK_MONOTONIC as Go's time package reads it: through the vDSO, which takes a tenth of the
// time of Now's system call. The two differ by the calibration error, unless a clock fault patched the vDSO.
func Mono() int64 { return int64(time.Since(zero)) }

// Reading is one reading of the machine's wall clock, in ns since 1970, between two readings of Now.
type Reading struct{ Before, Wall, After int64 }

// Read reads the machine's clocks.
func Read() Reading {
	before := Now()
	wall := wallNow()
	return Reading{Before: before, Wall: wall, After: Now()}
}

// Wall returns this machine's wall clock, for faults that move wall clocks. Nothing else in a run is timed by it.
func Wall() time.Time { return time.Now().Round(0) }
