package clock

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestAlarm waits for future moments, for a past one, and for one that the end of the context precedes.
func TestAlarm(t *testing.T) {
	why := errors.New("the run is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	a := NewAlarm(ctx)
	defer a.Close()
	began := Now()
	for i := range int64(200) {
		at := began + (i-10)*int64(100*time.Microsecond)
		if err := a.Wait(at); err != nil || Mono() < at {
			t.Fatalf("woke %v before it was time, with %v", time.Duration(at-Mono()), err)
		}
	}
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	for range 2 {
		if err := a.Wait(Now() + int64(time.Hour)); !errors.Is(err, why) {
			t.Errorf("woke with %v, want %v", err, why)
		}
	}
}
