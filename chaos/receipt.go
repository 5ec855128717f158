package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// Seen returns a receipt taken at the given time; 0 means now.
func Seen(status history.ReceiptStatus, at int64, evidence string) history.Receipt {
	if at == 0 {
		at = clock.Now()
	}
	return history.Receipt{Status: status, Evidence: evidence, Time: at}
}

// Worse reports whether status a is worse than b.
func Worse(a, b history.ReceiptStatus) bool { return severity[a] > severity[b] }

// severity orders the statuses of receipts.
var severity = map[history.ReceiptStatus]int{history.Installed: 0, history.Indeterminate: 1, history.NotInstalled: 2}

// joined returns the receipt for several targets: the worst status, the latest time, and the earliest time of a signal.
func joined(receipts []history.Receipt) history.Receipt {
	out := history.Receipt{Status: history.Installed}
	var evidence []string
	for _, r := range receipts {
		if Worse(r.Status, out.Status) {
			out.Status = r.Status
		}
		out.Time = max(out.Time, r.Time)
		if r.Sent != 0 && (out.Sent == 0 || r.Sent < out.Sent) {
			out.Sent = r.Sent
		}
		evidence = append(evidence, r.Evidence)
	}
	if len(receipts) == 0 {
		return Seen(history.NotInstalled, 0, "no target")
	}
	out.Evidence = strings.Join(evidence, "; ")
	return out
}

// OnEach runs act on all targets concurrently and joins the receipts. An error makes that target's receipt
// not-installed, with the error as evidence.
func OnEach[T Node](targets []T, act func(T) (history.Receipt, error)) (history.Receipt, error) {
	receipts, errs := make([]history.Receipt, len(targets)), make([]error, len(targets))
	var all sync.WaitGroup
	for i, n := range targets {
		all.Go(func() {
			r, err := act(n)
			if err != nil {
				r = Seen(history.NotInstalled, r.Time, strings.TrimPrefix(r.Evidence+"; "+n.Name()+": "+err.Error(),
					"; "))
			}
			receipts[i], errs[i] = r, err
		})
	}
	all.Wait()
	return joined(receipts), errors.Join(errs...)
}

// AtAll calls act for all of a list concurrently and joins the errors.
func AtAll[T any](list []T, act func(T) error) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, one := range list {
		all.Go(func() { errs[i] = act(one) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Capable returns the targets as the type that a fault needs. If one does not implement it, Capable returns an
// Unavailable error and nothing has been done to any target.
func Capable[T any](on []Node, what Capability) ([]T, error) {
	var out []T
	for _, n := range on {
		t, ok := As[T](n)
		if !ok {
			return nil, Unavailable{What: string(what), Reason: n.Name() + " is a node without this capability"}
		}
		out = append(out, t)
	}
	return out, nil
}

// Before reads the state of a target whose process is about to be changed. If there is no process, the receipt says
// that there was nothing to do.
func Before(ctx context.Context, n inspected, what string) (state ProcessState, none history.Receipt, err error) {
	if state, err = n.Inspect(ctx); err != nil {
		return state, none, fmt.Errorf("its state could not be read: %w", err)
	}
	if state.Gone() {
		none = Seen(history.NotInstalled, state.Time, n.Name()+" had no process "+what)
	}
	return state, none, nil
}

// NothingDone returns the receipt for an error that occurred before anything was done.
func NothingDone(err error) history.Receipt {
	return Seen(history.NotInstalled, 0, "nothing was done: "+err.Error())
}

// Hits records the targets that an injection has begun to change, each with what its heal needs. A target is noted
// right before it is changed, so that a half-done change is undone too.
type Hits[T Node] struct {
	mu  sync.Mutex
	all []T
}

// Note adds one.
func (h *Hits[T]) Note(target T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, target)
}

// List returns a copy of those noted so far.
func (h *Hits[T]) List() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// Heal heals all of them concurrently.
func (h *Hits[T]) Heal(ctx context.Context, one func(T) (history.Receipt, error)) (history.Receipt, error) {
	all := h.List()
	if len(all) == 0 {
		return NothingToHeal(ctx)
	}
	return OnEach(all, one)
}

// AtOnce injects into all targets of a scope concurrently. inject notes each in hits, with what heal needs.
func AtOnce[N, T Node](s Scope, c Capability, inject func(n N, hits *Hits[T]) (history.Receipt, error),
	heal func(context.Context, T) (history.Receipt, error),
) (Heal, history.Receipt, error) {
	targets, err := Capable[N](s.On, c)
	if err != nil {
		return NothingToHeal, NothingDone(err), err
	}
	var hits Hits[T]
	receipt, err := OnEach(targets, func(n N) (history.Receipt, error) { return inject(n, &hits) })
	return func(ctx context.Context) (history.Receipt, error) {
		return hits.Heal(ctx, func(t T) (history.Receipt, error) { return heal(ctx, t) })
	}, receipt, err
}

// NothingToHeal is the heal of an injection that did nothing at all.
func NothingToHeal(context.Context) (history.Receipt, error) {
	return Seen(history.Installed, 0, "nothing had been done"), nil
}
