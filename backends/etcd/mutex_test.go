package etcd

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestSessionEndIsNotACancel: the end of a session is not a cancel by the user.
func TestSessionEndIsNotACancel(t *testing.T) {
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

// TestGaveUp: a wait counts as given up only if the user's own time ended it.
func TestGaveUp(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want bool
	}{
		{"the history was compacted", t.Context(), rpctypes.ErrCompacted, false},
		{"the user was told to stop", stopped, context.Canceled, true},
		{"the server saw the deadline first", t.Context(), status.Error(codes.DeadlineExceeded, "context deadline exceeded"), true},
		{"the session ended", t.Context(), errSessionEnded, false},
	} {
		if got := gaveUp(c.ctx, c.err); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
