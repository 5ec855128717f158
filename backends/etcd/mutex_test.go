package etcd

import (
	"context"
	"errors"
	"testing"
)

// TestWhoGaveUpACall: the end of a session is not a user that was told to stop.
func TestWhoGaveUpACall(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx, session context.Context
		want         error
	}{
		"the session ended":       {t.Context(), stopped, errSessionEnded},
		"the user was told":       {stopped, t.Context(), context.Canceled},
		"the user, and its lease": {stopped, stopped, context.Canceled},
	} {
		returned, err := guarded(c.ctx, c.session, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !returned || !errors.Is(err, c.want) || errors.Is(err, context.Canceled) == errors.Is(err, errSessionEnded) {
			t.Errorf("%s: %t, %v", name, returned, err)
		}
	}
}
