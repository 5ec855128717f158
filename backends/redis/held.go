package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// held is what one user was granted and has not given back, with what the lock needs to do that: the handle of a library. The zero
// value is empty. Its methods may be called from several goroutines.
type held[H any] struct {
	mu   sync.Mutex
	byID map[string]kept[H]
}

type kept[H any] struct {
	grant  lock.Grant
	handle H
}

// keep remembers a grant, or its renewed self.
func (h *held[H]) keep(g lock.Grant, handle H) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID == nil {
		h.byID = map[string]kept[H]{}
	}
	h.byID[g.ID] = kept[H]{grant: g, handle: handle}
}

// drop forgets a grant.
func (h *held[H]) drop(g lock.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byID, g.ID)
}

// handle returns what was kept with a grant; one that this user does not have is certainly not held by it.
func (h *held[H]) handle(g lock.Grant) (H, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, ok := h.byID[g.ID]
	if !ok {
		return k.handle, fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	return k.handle, nil
}

// free gives back what the user may still hold, all within timeout; what is left expires, if it does.
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

// left returns the grants that are not over.
func (h *held[H]) left() []lock.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []lock.Grant
	for _, k := range h.byID {
		if k.grant.ValidUntil.Covers(time.Now()) {
			out = append(out, k.grant)
		}
	}
	return out
}
