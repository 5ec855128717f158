package clock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Acts notes when the acts of one injection or heal were carried out, and what it waited for on purpose. It travels in
// a context: a mechanism that acts need not know for whom.
//
// Example: a delay is due at 5.0 s. Its links are measured until 5.4 s, which is a wait. The agent says that its rules
// stood at 5.5 s. The links are measured again until 11.8 s. The delay was carried out at 5.5 s and is 0.1 s late.
type Acts struct {
	mu    sync.Mutex
	done  int64
	waits []wait
}

// wait is a stretch in which an injection waited on purpose, which was to take at most so long.
type wait struct{ from, until, most int64 }

type (
	actsKey struct{}
	actKey  struct{}
)

// WithActs returns a context whose acts and waits are noted.
func WithActs(ctx context.Context) (context.Context, *Acts) {
	a := &Acts{}
	return context.WithValue(ctx, actsKey{}, a), a
}

// WithoutActs returns a context of which nothing is noted: what follows is no part of the injection or heal any more.
func WithoutActs(ctx context.Context) context.Context {
	return context.WithValue(ctx, actsKey{}, (*Acts)(nil))
}

func actsOf(ctx context.Context) *Acts {
	a, _ := ctx.Value(actsKey{}).(*Acts)
	return a
}

// Act begins an act. It was carried out when CarriedOut says so for the returned context, else when done is called.
func Act(ctx context.Context) (acting context.Context, done func()) {
	a := actsOf(ctx)
	if a == nil {
		return ctx, func() {}
	}
	var said atomic.Int64
	return context.WithValue(ctx, actKey{}, &said), func() {
		at := cmp.Or(said.Load(), Now())
		a.mu.Lock()
		defer a.mu.Unlock()
		a.done = max(a.done, at)
	}
}

// CarriedOut says when an act that was ordered from elsewhere was carried out. The answer may arrive long after that.
func CarriedOut(ctx context.Context, at int64) {
	if said, ok := ctx.Value(actKey{}).(*atomic.Int64); ok && at != 0 {
		said.Store(min(at, Now()))
	}
}

// Waits begins a wait on purpose, which should take at most so long. Whatever it takes beyond that makes the injection
// late.
func Waits(ctx context.Context, most time.Duration) (over func()) {
	a, from := actsOf(ctx), Now()
	return func() {
		if a == nil {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.waits = append(a.waits, wait{from, Now(), int64(most)})
	}
}

// Done returns when the last act was carried out (ns); 0 where there was none.
func (a *Acts) Done() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

// Late returns how much later (ns) than due the last act was carried out, without the waits on purpose before it.
func (a *Acts) Late(due int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, a.done-due-a.waited(due, a.done))
}

// Measured returns for how long (ns) it waited on purpose since the last act, and by how much that was more than it
// should be.
func (a *Acts) Measured() (waited, over int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waits {
		if w.from >= a.done {
			over = max(over, w.until-w.from-w.most)
		}
	}
	return a.waited(a.done, Now()), over
}

// waited adds up the waits between two times, none for longer than it should take. Those that overlap count once.
func (a *Acts) waited(from, to int64) (sum int64) {
	slices.SortFunc(a.waits, func(x, y wait) int { return cmp.Compare(x.from, y.from) })
	for _, w := range a.waits {
		begun, until := max(w.from, from), min(w.until, w.from+w.most, to)
		if begun < until {
			sum, from = sum+until-begun, until
		}
	}
	return sum
}
