package backends

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// renewing is a session that is renewed by hand.
type renewing struct {
	valid   lock.Validity
	changed chan struct{}
}

func (r *renewing) renew(valid lock.Validity) {
	r.valid = valid
	was := r.changed
	r.changed = make(chan struct{})
	close(was)
}

func TestWatchReportsChangesUntilTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := &renewing{lock.Until(start.Add(time.Second)), make(chan struct{})}
		lost := make(chan struct{})
		s := HeldGrant{Validity: func() (lock.Validity, <-chan struct{}) { return r.valid, r.changed }, Lost: lost}
		news := s.Watch(t.Context(), r.valid)
		synctest.Wait()
		if len(news) != 0 {
			t.Fatalf("what is known is no news: %+v", <-news)
		}
		later := lock.Until(start.Add(2 * time.Second))
		r.renew(later)
		if c := <-news; c.ValidUntil != later || c.Lost {
			t.Errorf("renewed: %+v", c)
		}
		synctest.Wait()
		r.renew(lock.Unknown())
		synctest.Wait()
		if len(news) != 0 {
			t.Errorf("an unknown validity is no news: %+v", <-news)
		}
		close(lost)
		if c := <-news; !c.Lost {
			t.Errorf("lost: %+v", c)
		}
		if c, open := <-news; open {
			t.Errorf("after the loss: %+v", c)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		released := HeldGrant{Lost: make(chan struct{}), Over: over}.Watch(t.Context(), lock.Unknown())
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := HeldGrant{}.Watch(ctx, lock.Unknown())
		close(over)
		cancel()
		for what, news := range map[string]<-chan lock.Change{"released": released, "cancelled": cancelled, "unwatched": Unwatched()} {
			if c, open := <-news; open {
				t.Errorf("%s: %+v", what, c)
			}
		}
	})
}
