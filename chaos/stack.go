package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
)

// Stack holds the heals of the active injections. Each heal runs once, however many goroutines ask for it.
type Stack struct {
	mu       sync.Mutex
	standing []*standing
}

type standing struct {
	id    int
	heal  Heal
	limit time.Duration
	taken bool
	done  chan struct{}
}

// Healed is the result of one heal.
type Healed struct {
	ID      int // as given to Push
	Receipt history.Receipt
	Err     error
}

// NewStack returns an empty stack.
func NewStack() *Stack { return &Stack{} }

// Push adds the heal of an injection. limit bounds its duration; see Limit.
func (s *Stack) Push(id int, heal Heal, limit time.Duration) {
	if heal == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standing = append(s.standing, &standing{id: id, heal: heal, limit: limit, done: make(chan struct{})})
}

// Heal heals one injection. ok is false if no injection of that id is active: it was healed before, or is being healed.
// A heal runs to its end or its limit, even if ctx is cancelled.
func (s *Stack) Heal(ctx context.Context, id int) (receipt history.Receipt, err error,
	ok bool,
) { //nolint:staticcheck,revive // ok says whether there is an error to speak of
	s.mu.Lock()
	i := slices.IndexFunc(s.standing, func(h *standing) bool { return h.id == id && !h.taken })
	if i < 0 {
		s.mu.Unlock()
		return history.Receipt{}, nil, false
	}
	h := s.standing[i]
	h.taken = true
	s.mu.Unlock()
	out := s.run(ctx, h)
	return out.Receipt, out.Err, true
}

// HealAll heals all active injections, the last one first, and returns the results. It waits for heals that others have
// begun and continues after failures. A cancelled ctx does not stop it.
func (s *Stack) HealAll(ctx context.Context) []Healed {
	var out []Healed
	for {
		s.mu.Lock()
		if len(s.standing) == 0 {
			s.mu.Unlock()
			return out
		}
		h := s.standing[len(s.standing)-1]
		mine := !h.taken
		h.taken = true
		s.mu.Unlock()
		if mine {
			out = append(out, s.run(ctx, h))
		}
		<-h.done
	}
}

// Len returns the number of active injections.
func (s *Stack) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.standing)
}

// Others returns the number of active injections besides the one of that id.
func (s *Stack) Others(id int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, h := range s.standing {
		if h.id != id {
			n++
		}
	}
	return n
}

func (s *Stack) run(ctx context.Context, h *standing) Healed {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.limit)
	defer cancel()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.standing = slices.DeleteFunc(s.standing, func(x *standing) bool { return x == h })
		close(h.done)
	}()
	receipt, err := h.heal(ctx)
	return Healed{ID: h.id, Receipt: receipt, Err: err}
}
