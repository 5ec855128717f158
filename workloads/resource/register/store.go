package register

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// cell is what one lock protects.
type cell struct {
	value   int64
	applied int64      // writes
	seen    lock.Token // highest token that the guard has checked
	owner   string     // of the grant that is registered
}

// version names the cell's current content; the first one is 1.
func (c *cell) version() int64 { return c.applied + 1 }

// store holds the cells and guards them. Guard, access and log entry are one step under one mutex. So the order of
// the log is the order of arrival, and no access comes between a guard's check and the access that it passed.
type store struct {
	guard       string
	conditional bool // whether the guard is conditional
	look        look
	ask         lock.SequencerChecker // nil unless the guard asks
	record      func(*history.Event)
	names       map[string]int

	asking sync.Mutex // the methods of a Locker are called one at a time
	mu     sync.Mutex
	cells  []cell
}

// askTimeout bounds a question to the lock service.
const askTimeout = 2 * time.Second

func newStore(guard string, locks []string, record func(*history.Event)) (*store, error) {
	if guard == "" {
		guard = resource.GuardNone
	}
	kind := kindOf(guard)
	if kind.Name == "" {
		var names []string
		for _, g := range guards {
			names = append(names, g.Name)
		}
		return nil, fmt.Errorf("guard is %q: want one of %v", guard, names)
	}
	s := &store{
		guard: guard, conditional: kind.Conditional, look: lookOf(guard), record: record,
		names: make(map[string]int, len(locks)), cells: make([]cell, len(locks)),
	}
	for i, name := range locks {
		s.names[name] = i
	}
	return s, nil
}

// operation is one request.
type operation struct {
	resource.Access
	kind    string // opRead, opCheck or opWrite
	value   int64
	version int64 // base version of the write; 0 if nothing was read
}

// applied is the result of an operation.
type applied struct {
	value   int64 // after it
	version int64
}

// apply does one operation. The error wraps ErrFenced or ErrRefused.
func (s *store) apply(ctx context.Context, op operation) (applied, error) {
	i, ok := s.names[op.Lock]
	if !ok {
		return applied{}, fmt.Errorf("%w: there is no lock %q", resource.ErrRefused, op.Lock)
	}
	gone := s.stands(ctx, op)
	if gone != nil && !errors.Is(gone, resource.ErrFenced) {
		return applied{}, gone // the answer is unknown, so nothing is done
	}
	e := history.Event{
		Kind: history.EffectWrite, Phase: history.Ok, User: op.User, Grant: op.Grant, Lock: uint16(i),
		Token: uint64(op.Token),
		Value: op.value,
	}
	if op.kind == opRead {
		e.Kind, e.Value = history.EffectRead, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cells[i]
	err := gone
	if err == nil {
		err = s.look(c, op)
	}
	switch {
	case err != nil:
		e.Phase, e.Code = history.Fail, resource.RefusalCode(err)
	case op.kind == opWrite:
		c.value = op.value
		c.applied++
		if s.conditional {
			e.Code = history.CodeConditional
		}
	case op.kind == opRead:
		e.Value = c.value
	}
	if err != nil || op.kind != opCheck { // a passing check changes nothing
		s.record(&e)
		resource.RecordReason(s.record, &e, err)
	}
	return applied{c.value, c.version()}, err
}

// stands asks the lock service, if the guard demands it, whether the holder's sequencer is still valid. A holder may
// lose the lock between the answer and the access. The next holder then has a higher generation. Once the fence has
// seen that, it refuses the one before.
func (s *store) stands(ctx context.Context, op operation) error {
	if s.ask == nil || op.Token == lock.NoToken || s.guard == resource.GuardAskThenWrite && op.kind == opWrite {
		return nil
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := s.ask.CheckSequencer(ctx, lock.Sequencer{Lock: op.Lock, Mode: op.Mode, Generation: op.Token})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lock.ErrNotHeld):
		return resource.Fenced(lock.Reason{Cause: lock.CauseSequencerEnded, Seen: uint64(op.Token)},
			"according to the lock service, sequencer (%s, %s, %d) is no longer valid", op.Lock, op.Mode, op.Token)
	}
	return fmt.Errorf("%w: the lock service did not say whether the sequencer is valid: %w", resource.ErrRefused, err)
}

// final reads a cell for the judge, without the guard.
func (s *store) final(i int) (resource.Final, error) {
	if i < 0 || i >= len(s.cells) {
		return resource.Final{}, fmt.Errorf("%w: there is no lock with number %d of %d", resource.ErrRefused, i,
			len(s.cells))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cells[i]
	s.record(&history.Event{
		Kind: history.Final, Phase: history.Info, Lock: uint16(i), Value: c.value,
		Valid: c.applied,
	})
	return resource.Final{Value: c.value, Applied: c.applied}, nil
}
