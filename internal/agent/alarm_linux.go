package agent

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// alarm wakes one thread at a time, or when it is rung. It waits in the kernel, on a thread of its own: Go's timers run
// late by half a millisecond and more, this by a tenth.
type alarm struct{ bell int }

func newAlarm() (*alarm, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an event descriptor: %w", err)
	}
	return &alarm{bell: bell}, nil
}

// own makes the calling goroutine's thread its own for good, and has the kernel wake it sharply.
func (a *alarm) own() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // else it may sleep 50 µs too long
	// Before everybody else, where we may: it sleeps nearly all of the time, and what it does is short.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
}

// wait returns at ns of CLOCK_MONOTONIC (0: never), or when the alarm is rung, or sooner.
func (a *alarm) wait(until int64) {
	var limit *unix.Timespec
	if until != 0 {
		left := until - clock.Now()
		if left <= 0 {
			return
		}
		ts := unix.NsecToTimespec(left)
		limit = &ts
	}
	fds := []unix.PollFd{{Fd: int32(a.bell), Events: unix.POLLIN}}
	if n, err := unix.Ppoll(fds, limit, nil); err != nil || n == 0 {
		if err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(time.Millisecond) // cannot be, and must not spin
		}
		return
	}
	var b [8]byte
	_, _ = unix.Read(a.bell, b[:]) // it was rung, and is quiet again
}

func (a *alarm) ring() { _, _ = unix.Write(a.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (a *alarm) close() error { return unix.Close(a.bell) }
