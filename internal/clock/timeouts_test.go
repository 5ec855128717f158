package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// told is the key of a value that a parent has.
type told struct{}

// TestTimeouts ends operations of one caller in each way, with a context derived from theirs.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		name           string
		parent, within time.Duration // when the parent ends; the timeout
		end            time.Duration // when the operation is over
		at             time.Duration
		err            error
	}{
		{"in time", time.Hour, time.Second, time.Millisecond, time.Millisecond, context.Canceled},
		{"too late", time.Hour, time.Second, time.Minute, time.Second, context.DeadlineExceeded},
		{"no time at all", time.Hour, 0, time.Minute, 0, context.DeadlineExceeded},
		{"the parent ends", time.Millisecond, time.Second, time.Minute, time.Millisecond, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(context.WithValue(t.Context(), told{}, c.at))
				defer cancel()
				var all Timeouts
				for range 3 { // those before have set the timer
					before := all.Within(parent, time.Second)
					time.Sleep(300 * time.Millisecond)
					if before.Err() != nil {
						t.Fatalf("an operation that was in time ended: %v", before.Err())
					}
					before.End()
				}
				began := time.Now()
				defer time.AfterFunc(c.parent, cancel).Stop()
				l := all.Within(parent, c.within)
				if end, ok := l.Deadline(); !ok || end.Sub(began) != c.within || l.Value(told{}) != c.at {
					t.Errorf("deadline in %v, %v; value %v", end.Sub(began), ok, l.Value(told{}))
				}
				beside := all.Within(parent, time.Hour) // another, that lasts
				child, free := context.WithCancel(l)
				defer free()
				kept, freed := context.WithCancel(l)
				freed()
				defer time.AfterFunc(c.end, l.End).Stop()
				<-child.Done()
				<-l.Done()
				if took := time.Since(began); took != c.at || !errors.Is(l.Err(), c.err) || !errors.Is(child.Err(), c.err) {
					t.Errorf("ended after %v with %v, and the child with %v; want %v, %v", took, l.Err(), child.Err(), c.at, c.err)
				}
				if kept.Err() == nil || (beside.Err() != nil) != (c.name == "the parent ends") {
					t.Errorf("freed: %v, beside: %v", kept.Err(), beside.Err())
				}
				l.End()
				beside.End()
				if len(all.under) != 0 {
					t.Errorf("%d operations are left", len(all.under))
				}
			})
		})
	}
}

// TestTimeoutsParents: each operation follows its own parent, even one that has already ended.
func TestTimeoutsParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Timeouts
		for range 3 {
			parent, cancel := context.WithCancel(t.Context())
			l := all.Within(parent, time.Hour)
			cancel()
			synctest.Wait()
			late := all.Within(parent, time.Hour)
			if !errors.Is(l.Err(), context.Canceled) || !errors.Is(late.Err(), context.Canceled) {
				t.Errorf("the parent has ended; the operations: %v and %v", l.Err(), late.Err())
			}
			called := make(chan struct{})
			if stop := late.AfterFunc(func() { close(called) }); stop() {
				t.Error("what had begun was stopped")
			}
			<-called
			l.End()
			late.End()
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l := all.Within(short, time.Hour)
		defer l.End()
		if end, _ := l.Deadline(); time.Until(end) != time.Second {
			t.Errorf("deadline in %v: want the parent's, in 1s", time.Until(end))
		}
	})
}

// TestTimeoutsParts: a part of an operation with its own timeout. The operation's end ends the part; the part's end
// ends only the part.
func TestTimeoutsParts(t *testing.T) {
	for _, c := range []struct {
		name        string
		whole, part time.Duration // timeouts
		end         func(parent context.CancelFunc, whole, part *Limited)
		at          time.Duration
		err         error
		wholeGoesOn bool
	}{
		{"the part is late", time.Minute, time.Second, nil, time.Second, context.DeadlineExceeded, true},
		{"the whole is late", time.Second, time.Minute, nil, time.Second, context.DeadlineExceeded, false},
		{"the parent ends", time.Minute, time.Minute, func(parent context.CancelFunc, _, _ *Limited) { parent() }, 0, context.Canceled, false},
		{"the whole is given up", time.Minute, time.Minute, func(_ context.CancelFunc, whole, _ *Limited) { whole.Cancel() }, 0, context.Canceled, false},
		{"the part is done", time.Minute, time.Minute, func(_ context.CancelFunc, _, part *Limited) { part.End() }, 0, context.Canceled, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(t.Context())
				defer cancel()
				var all, ofParts Timeouts
				began := time.Now()
				whole := all.Within(parent, c.whole)
				ofParts.Within(whole, time.Second).End() // one that came before
				part := ofParts.Within(whole, c.part)
				if c.end != nil {
					c.end(cancel, whole, part)
				}
				<-part.Done()
				if took := time.Since(began); took != c.at || !errors.Is(part.Err(), c.err) || (whole.Err() == nil) != c.wholeGoesOn {
					t.Errorf("the part ended after %v with %v, the whole with %v; want %v, %v", took, part.Err(), whole.Err(), c.at, c.err)
				}
				part.End()
				late := ofParts.Within(whole, time.Hour)
				if (late.Err() == nil) != c.wholeGoesOn {
					t.Errorf("a part that came later: %v", late.Err())
				}
				late.End()
				if len(whole.parts) != 0 || len(all.under) != 1 {
					t.Errorf("%d parts and %d operations are left: want none, and the whole", len(whole.parts), len(all.under))
				}
				whole.End()
			})
		})
	}
}

func BenchmarkTimeouts(b *testing.B) {
	parent, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ctx, end := context.WithTimeout(parent, time.Minute)
			ctx.Done()
			end()
		}
	})
	b.Run("Timeouts", func(b *testing.B) {
		b.ReportAllocs()
		var all Timeouts
		for b.Loop() {
			ctx := all.Within(parent, time.Minute)
			ctx.Done()
			ctx.End()
		}
	})
}
