package clock

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func now() int64 {
	var ts unix.Timespec
	// The call cannot fail for CLOCK_MONOTONIC and a valid pointer.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// wallNow returns CLOCK_REALTIME by a system call, like Now.
func wallNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &ts)
	return ts.Nano()
}

// startedByKernel returns when this process was created. The kernel counts that in hundredths of a second since boot,
// on a clock that also runs while the machine sleeps.
func startedByKernel() (int64, bool) {
	b, err := os.ReadFile("/proc/self/stat")
	i := bytes.LastIndexByte(b, ')') // the name before it may contain any characters
	if err != nil || i < 0 {
		return 0, false
	}
	const field = 22 - 3 // starttime, counted from the state, which is field 3
	f := bytes.Fields(b[i+1:])
	if len(f) <= field {
		return 0, false
	}
	ticks, err := strconv.ParseInt(string(f[field]), 10, 64)
	var boot unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0, false
	}
	return ticks*1e7 - (boot.Nano() - now()), true
}
