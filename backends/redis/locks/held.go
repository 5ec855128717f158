package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// held is the set of one user's grants that are not yet given back, each with the library's handle that the lock
// needs for that. The zero value is empty. Its methods may be called from several goroutines.
type held[H any] struct {
	mu   sync.Mutex
	list []kept[H] // seldom more than one
}

type kept[H any] struct {
	grant  lock.Grant
	handle H
}

// find returns the position of the grant in the list, or -1. The caller holds mu.
func (h *held[H]) find(g lock.Grant) int {
	return slices.IndexFunc(h.list, func(k kept[H]) bool { return k.grant.ID == g.ID })
}

// keep adds a grant, or replaces it with its renewal.
func (h *held[H]) keep(g lock.Grant, handle H) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.find(g); i >= 0 {
		h.list[i] = kept[H]{grant: g, handle: handle}
		return
	}
	h.list = append(h.list, kept[H]{grant: g, handle: handle})
}

// drop removes a grant.
func (h *held[H]) drop(g lock.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.find(g); i >= 0 {
		h.list = slices.Delete(h.list, i, i+1)
	}
}

// handle returns the handle of a grant. A grant that this user does not have is certainly not held by it.
func (h *held[H]) handle(g lock.Grant) (handle H, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.find(g); i >= 0 {
		return h.list[i].handle, nil
	}
	return handle, fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
}

// free releases what the user may still hold, all within timeout. Anything left expires if it has an expiry.
func (h *held[H]) free(timeout time.Duration, release func(context.Context, lock.Grant) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var errs []error
	for _, g := range h.left() {
		if err := release(ctx, g); err != nil && !errors.Is(err, lock.ErrNotHeld) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// left returns the grants that are not given back.
func (h *held[H]) left() []lock.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []lock.Grant
	for _, k := range h.list {
		if k.grant.ValidUntil.Covers(time.Now()) {
			out = append(out, k.grant)
		}
	}
	return out
}
