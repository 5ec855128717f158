package resource

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
)

// cell is what one lock protects.
type cell struct {
	value   int64
	applied int64      // writes
	seen    lock.Token // highest token that the guard has looked at
}

// store holds the cells and guards them. Guard, access and log entry are one step under one mutex, so that the order of
// the log is the order of arrival, and no access comes between a guard's look and what it let through.
type store struct {
	guard  string
	record func(*history.Event)
	names  map[string]int

	mu    sync.Mutex
	cells []cell
}

var guards = []string{GuardNone, GuardFence, GuardFenceWrites}

func newStore(guard string, locks []string, record func(*history.Event)) (*store, error) {
	if guard == "" {
		guard = GuardNone
	}
	if !slices.Contains(guards, guard) {
		return nil, fmt.Errorf("guard is %q: want one of %v", guard, guards)
	}
	s := &store{guard: guard, record: record, names: make(map[string]int, len(locks)), cells: make([]cell, len(locks))}
	for i, name := range locks {
		s.names[name] = i
	}
	return s, nil
}

// operation is one read or write.
type operation struct {
	Access
	write bool
	value int64
}

// apply does one operation and returns the value after it. The error wraps ErrFenced or ErrRefused.
func (s *store) apply(op operation) (int64, error) {
	i, ok := s.names[op.Lock]
	if !ok {
		return 0, fmt.Errorf("%w: there is no lock %q", ErrRefused, op.Lock)
	}
	e := history.Event{
		Kind: history.EffectRead, Phase: history.Ok, User: op.User, Grant: op.Grant, Lock: uint16(i), Token: uint64(op.Token),
		Value: op.value,
	}
	if op.write {
		e.Kind = history.EffectWrite
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cells[i]
	err := s.look(c, op)
	switch {
	case err != nil:
		e.Phase, e.Code = history.Fail, history.CodeFenced
	case op.write:
		c.value = op.value
		c.applied++
	default:
		e.Value = c.value
	}
	s.record(&e)
	return c.value, err
}

// look asks the guard. The caller holds mu.
func (s *store) look(c *cell, op operation) error {
	if s.guard == GuardNone || s.guard == GuardFenceWrites && !op.write {
		return nil
	}
	if op.Token == lock.NoToken {
		return fmt.Errorf("%w: it wants a fencing token", ErrFenced)
	}
	if op.Token < c.seen {
		return fmt.Errorf("%w: token %d is lower than %d", ErrFenced, op.Token, c.seen)
	}
	c.seen = op.Token
	return nil
}

// final reads a cell for the judge, past the guard.
func (s *store) final(i int) (value, applied int64, err error) {
	if i < 0 || i >= len(s.cells) {
		return 0, 0, fmt.Errorf("%w: there is no lock with number %d of %d", ErrRefused, i, len(s.cells))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[i]
	s.record(&history.Event{Kind: history.Final, Phase: history.Info, Lock: uint16(i), Value: c.value, Valid: c.applied})
	return c.value, c.applied, nil
}
