package chaos

import (
	"context"
	"slices"
	"sync"

	"github.com/lockquake/lockquake/history"
)

// hits are the targets that an injection began with, each as what its heal needs to know of it. A target is noted right before it is
// touched: what was only half done must be undone too.
type hits[T Node] struct {
	mu  sync.Mutex
	all []T
}

func (h *hits[T]) note(target T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, target)
}

// list is a copy of those noted so far.
func (h *hits[T]) list() []T {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// heal heals all of them at once.
func (h *hits[T]) heal(ctx context.Context, one func(T) (history.Receipt, error)) (history.Receipt, error) {
	all := h.list()
	if len(all) == 0 {
		return nothingToHeal(ctx)
	}
	return onEach(all, one)
}

// nothingToHeal is the heal of an injection that did nothing at all.
func nothingToHeal(context.Context) (history.Receipt, error) {
	return seen(history.Installed, 0, "nothing had been done"), nil
}
