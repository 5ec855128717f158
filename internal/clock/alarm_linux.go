package clock

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// spin is how long an Alarm busy-waits: about the wake-up time of a thread.
const spin = 20 * time.Microsecond

// Alarm waits for moments of Now, one after another, for one caller. In an idle process a Go timer is late by half a
// millisecond, because Go makes the kernel wait for whole milliseconds. The kernel's own timer is not.
type Alarm struct {
	ctx   context.Context
	fd    int
	timer *os.File // the timer of fd; nil: none
	leave func() bool
}

// NewAlarm returns an Alarm whose waits end with ctx. The caller must close it.
func NewAlarm(ctx context.Context) *Alarm {
	a := &Alarm{ctx: ctx}
	if simulated {
		return a
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return a
	}
	a.fd, a.timer = fd, os.NewFile(uintptr(fd), "timerfd")
	a.leave = context.AfterFunc(ctx, func() { _ = a.timer.SetReadDeadline(time.Unix(1, 0)) })
	return a
}

// Wait returns nil at t, or the cause if ctx ends before.
func (a *Alarm) Wait(t int64) error {
	if a.timer == nil {
		return Sleep(a.ctx, time.Duration(t-Now()))
	}
	if wake := t - int64(spin); wake > Mono() {
		set := unix.ItimerSpec{Value: unix.NsecToTimespec(wake)}
		if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &set, nil); err != nil {
			return err
		}
		var times [8]byte
		if _, err := a.timer.Read(times[:]); err != nil && a.ctx.Err() == nil {
			return err
		}
	}
	for Mono() < t && a.ctx.Err() == nil { // busy
	}
	return context.Cause(a.ctx)
}

// Close frees the timer.
func (a *Alarm) Close() {
	if a.timer != nil {
		a.leave()
		_ = a.timer.Close()
	}
}
