package redis

import (
	"sync"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// hand is what one user has in hand, so that Close can free it. Its zero value is empty.
type hand struct {
	mu     sync.Mutex
	grants map[string]lock.Grant // by id
}

// take remembers a grant, or its renewal.
func (h *hand) take(g lock.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.grants == nil {
		h.grants = map[string]lock.Grant{}
	}
	h.grants[g.ID] = g
}

// drop forgets a grant that was released or lost.
func (h *hand) drop(g lock.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.grants, g.ID)
}

// left returns the grants that were neither dropped nor are over.
func (h *hand) left() []lock.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []lock.Grant
	for _, g := range h.grants {
		if g.ValidUntil.Covers(time.Now()) {
			out = append(out, g)
		}
	}
	return out
}
