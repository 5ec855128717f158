package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends; then it returns why ctx did. Where d is not above 0 it only tells whether ctx
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
