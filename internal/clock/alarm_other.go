//go:build !linux

package clock

import (
	"context"
	"time"
)

// Alarm waits for moments of Now, one after another, for one caller.
type Alarm struct{ ctx context.Context }

// NewAlarm returns an Alarm whose waits end with ctx.
func NewAlarm(ctx context.Context) *Alarm { return &Alarm{ctx} }

// Wait returns nil at t, or the cause if ctx ends before.
func (a *Alarm) Wait(t int64) error { return Sleep(a.ctx, time.Duration(t-Now())) }

// Close does nothing.
func (a *Alarm) Close() {}
