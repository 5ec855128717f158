package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends, and then returns the cause. If d is not positive, it only checks whether ctx
// has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
