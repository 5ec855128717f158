package clock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Acts records when the acts of one injection or heal were carried out, and its deliberate waits. It is passed in a
// context, so that a mechanism need not know for which injection it acts.
//
// Example: a delay is due at 5.0 s. Its links are measured until 5.4 s, which is a wait. The agent reports that its
// rules were installed at 5.5 s. The links are measured again until 11.8 s. The delay was carried out at 5.5 s and is
// 0.1 s late.
type Acts struct {
	mu    sync.Mutex
	done  int64
	waits []wait
}

// wait is a deliberate wait of an injection, with the longest time that it should take.
type wait struct{ from, until, most int64 }

type (
	actsKey struct{}
	actKey  struct{}
)

// WithActs returns a context whose acts and waits are recorded.
func WithActs(ctx context.Context) (context.Context, *Acts) {
	a := &Acts{}
	return context.WithValue(ctx, actsKey{}, a), a
}

// WithoutActs returns a context that records nothing: what follows is not part of the injection or heal any more.
func WithoutActs(ctx context.Context) context.Context {
	return context.WithValue(ctx, actsKey{}, (*Acts)(nil))
}

func actsOf(ctx context.Context) *Acts {
	a, _ := ctx.Value(actsKey{}).(*Acts)
	return a
}

// Act begins an act. Its time is the one that CarriedOut gets with the returned context, or else when done is called.
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

// CarriedOut records when an act was carried out elsewhere. The answer may arrive long after that.
func CarriedOut(ctx context.Context, at int64) {
	if said, ok := ctx.Value(actKey{}).(*atomic.Int64); ok && at != 0 {
		said.Store(min(at, Now()))
	}
}

// Waits begins a deliberate wait, which should take at most that long. The excess makes the injection late.
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

// Done returns when the last act was carried out (ns); 0 if there was none.
func (a *Acts) Done() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done
}

// Late returns how much later than due (ns) the last act was carried out, not counting the deliberate waits before it.
func (a *Acts) Late(due int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, a.done-due-a.waited(due, a.done))
}

// Measured returns how long (ns) the deliberate waits since the last act took, and by how much they exceeded their
// limits.
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

// waited adds up the waits between two times, each up to its limit. Overlapping waits count once.
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
