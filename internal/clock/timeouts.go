package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Timeouts makes the contexts of one caller's operations. They work like those of context.WithTimeout, but cost less if
// operations follow each other under the same parent: one timer and one registration with the parent serve all. The
// zero value is ready to use.
//
// Example: operations with a timeout of 10 s each take 1 ms. The first sets the timer to 10 s. The others find it set
// to a time before their own deadlines. When it goes off, it is set again to the deadline of the current operation.
type Timeouts struct {
	mu     sync.Mutex
	parent context.Context
	leave  func() bool // removes the registration with the parent
	under  []*Limited  // operations in progress
	timer  *time.Timer
	due    time.Time // when the timer goes off; zero: not set
}

// Limited is the context of one operation.
type Limited struct {
	context.Context // the parent, for its values
	of              *Timeouts
	deadline        time.Time
	done            chan struct{}

	mu    sync.Mutex
	err   error
	after map[*func()]struct{} // called at the end
	parts []*Limited           // parts of this operation, with their own timeouts
}

// Within returns a context that ends with its parent, after d, or by End, which must be called when the operation is
// over. If the parent is itself an operation, this is a part of it, and the parent's Timeouts serve both.
func (t *Timeouts) Within(parent context.Context, d time.Duration) *Limited {
	l := &Limited{Context: parent, of: t, deadline: time.Now().Add(d), done: make(chan struct{})}
	if before, ok := parent.Deadline(); ok && before.Before(l.deadline) {
		l.deadline = before
	}
	whole, part := parent.(*Limited)
	if part {
		l.of = whole.of
		whole.mu.Lock()
		whole.parts = append(whole.parts, l)
		whole.mu.Unlock()
		t = whole.of
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !part && t.parent != parent {
		t.follow(parent)
	}
	t.under = append(t.under, l)
	t.set(l.deadline)
	if err := parent.Err(); err != nil { // it may have ended before this one was registered
		l.end(err)
	}
	return l
}

// follow registers with a parent. Operations of the earlier parent are left to their deadlines, see Within. The caller
// holds mu.
func (t *Timeouts) follow(parent context.Context) {
	if t.leave != nil {
		t.leave()
	}
	t.parent = parent
	t.leave = context.AfterFunc(parent, func() {
		t.mu.Lock()
		under := slices.Clone(t.under)
		t.mu.Unlock()
		for _, l := range under {
			if l.Context == parent {
				l.end(parent.Err())
			}
		}
	})
}

// set makes the timer go off at the deadline, unless it is set to an earlier time. The caller holds mu.
func (t *Timeouts) set(deadline time.Time) {
	if !t.due.IsZero() && !deadline.Before(t.due) {
		return
	}
	t.due = deadline
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(deadline), t.expire)
	} else {
		t.timer.Reset(time.Until(deadline))
	}
}

// expire ends the operations whose deadline has come.
func (t *Timeouts) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = time.Time{}
	now := time.Now()
	for _, l := range t.under {
		if l.deadline.After(now) {
			t.set(l.deadline)
		} else {
			l.end(context.DeadlineExceeded)
		}
	}
}

// Cancel ends the context early. End still has to free its resources.
func (l *Limited) Cancel() { l.end(context.Canceled) }

// End ends the context, and frees its resources.
func (l *Limited) End() {
	l.end(context.Canceled)
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.under = without(l.of.under, l)
	if whole, ok := l.Context.(*Limited); ok {
		whole.mu.Lock()
		defer whole.mu.Unlock()
		whole.parts = without(whole.parts, l)
	}
}

func without(all []*Limited, l *Limited) []*Limited {
	return slices.DeleteFunc(all, func(x *Limited) bool { return x == l })
}

func (l *Limited) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = why
	close(l.done)
	for f := range l.after {
		go (*f)()
	}
	l.after = nil
	for _, part := range l.parts {
		part.end(why)
	}
}

// Deadline returns the deadline.
func (l *Limited) Deadline() (time.Time, bool) { return l.deadline, true }

// Done returns a channel that is closed at the end.
func (l *Limited) Done() <-chan struct{} { return l.done }

// Err returns why the context has ended, or nil.
func (l *Limited) Err() error {
	if err := l.Context.Err(); err != nil { // the parent ends at once, its callback comes a moment later
		l.end(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// AfterFunc calls f in its own goroutine at the end, unless stop is called before. Package context uses it for contexts
// derived from this one.
func (l *Limited) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	if l.after == nil {
		l.after = map[*func()]struct{}{}
	}
	key := &f
	l.after[key] = struct{}{}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, stopped := l.after[key]
		delete(l.after, key)
		return stopped
	}
}
