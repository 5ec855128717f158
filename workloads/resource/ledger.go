package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// The nodes of a resource that is a real service: the service, and the process that reads its log.
const (
	StoreNode  = "store"
	ledgerNode = "ledger"
)

// LedgerSpec describes the process beside a store.
func LedgerSpec(kind string) node.Spec {
	return node.Spec{
		Name: ledgerNode, Role: node.Resource, Image: node.SelfProgram, Stdio: true,
		Command: func(node.Place) []string { return node.Own(ledgerNode, kind) },
	}
}

// Book is the part of a ledger for one kind of store. Its methods are called one at a time.
type Book interface {
	// Open makes one attempt to connect and to create the empty store.
	Open(ctx context.Context, s *wire.Start) error
	// Now returns the time of the store's clock, which dates its log, in ns of any origin.
	Now(ctx context.Context) (int64, error)
	// Read returns the whole log in the order of the store's clock, and the final value of each lock.
	Read(ctx context.Context) (log []Entry, cells map[string]Final, err error)
	Close()
}

// Entry is one line of a store's log.
type Entry struct {
	At    int64 // ns of the store's clock
	Lock  string
	User  string
	Grant uint32
	Token uint64
	Write bool
	OK    bool
	Value int64
}

const (
	openTimeout = 25 * time.Second // a store that starts with the run may need most of it
	openPause   = 50 * time.Millisecond
	// CloseWait bounds the time to close one connection.
	CloseWait = time.Second
	// clockLooks is the number of readings of the store's clock; the one with the narrowest bracket counts.
	clockLooks = 50
	// maxClockShift is the maximum accepted drift of the store's clock against the run's during the run.
	maxClockShift = 5 * time.Millisecond
)

// Ledger runs the process beside a resource that is a real service. It creates the store, and at the end sends the
// supervisor the store's own log.
func Ledger(ctx context.Context, o Options, kinds []Kind, name string) error {
	return Drive(ctx, o, ledgerNode, func(context.Context) (Body, error) {
		k, ok := Find(kinds, name)
		if !ok || k.Book == nil {
			return nil, fmt.Errorf("resource %q has no ledger", name)
		}
		return &ledger{book: k.Book(), guards: k.Guards}, nil
	})
}

// ledger is the body of the process beside a store.
type ledger struct {
	book        Book
	guards      []Guard
	conditional bool // whether the run's guard is conditional
	rec         *wire.Recorder
	locks       []string
	offset      int64 // ns from the store's clock to the run's, at the start
	cells       map[string]Final
}

// Watched returns false: no user waits for a ledger.
func (l *ledger) Watched() bool { return false }

func (l *ledger) Start(ctx context.Context, s *wire.Start, rec *wire.Recorder) (string, error) {
	if s.Resource == nil {
		return "", errors.New("the address of the store is missing")
	}
	l.rec, l.locks, l.conditional = rec, s.Locks, Conditional(l.guards, s.Guard)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		err := l.book.Open(ctx, s)
		if err == nil {
			break
		}
		if clock.Sleep(ctx, openPause) != nil {
			return "", fmt.Errorf("the store at %s does not serve after %v: %w", s.Resource.Address, openTimeout, err)
		}
	}
	var err error
	l.offset, _, err = l.compare(ctx)
	return s.Resource.Address, err
}

// compare returns the offset from the store's clock to the run's, and its maximum error.
func (l *ledger) compare(ctx context.Context) (offset, wrong int64, err error) {
	wrong = int64(time.Hour)
	for range clockLooks {
		before := clock.Now()
		at, err := l.book.Now(ctx)
		if err != nil {
			return 0, 0, fmt.Errorf("the store's clock: %w", err)
		}
		after := clock.Now()
		if half := (after - before + 1) / 2; half < wrong {
			offset, wrong = before+half-at, half
		}
	}
	return offset, wrong, nil
}

// Final reads the whole log at the first call.
func (l *ledger) Final(ctx context.Context, number int) (Final, error) {
	if number < 0 || number >= len(l.locks) {
		return Final{}, fmt.Errorf("there is no lock with number %d of %d", number, len(l.locks))
	}
	if l.cells == nil {
		if err := l.tell(ctx); err != nil {
			return Final{}, err
		}
	}
	f, ok := l.cells[l.locks[number]]
	if !ok {
		return Final{}, fmt.Errorf("the store has no value for %s", l.locks[number])
	}
	l.rec.Append(&history.Event{
		Kind: history.Final, Phase: history.Info, Lock: uint16(number), Value: f.Value,
		Valid: f.Applied,
	})
	return f, nil
}

// tell turns the store's log into events. Their times may be late by the error of the clock comparison, but never
// early: an effect must not precede its grant.
func (l *ledger) tell(ctx context.Context) error {
	log, cells, err := l.book.Read(ctx)
	if err != nil {
		return fmt.Errorf("the store's log: %w", err)
	}
	offset, wrong, err := l.compare(ctx)
	if err != nil {
		return err
	}
	if d := time.Duration(offset - l.offset).Abs(); d > maxClockShift {
		return fmt.Errorf("the store's clock moved by %v during the run: its log cannot be dated", d)
	}
	for _, x := range log {
		e, err := l.event(x)
		if err != nil {
			return err
		}
		l.rec.AppendAt(&e, x.At+offset+wrong)
	}
	l.cells = cells
	return nil
}

func (l *ledger) event(x Entry) (history.Event, error) {
	u, err := history.ParseUser(x.User)
	if err != nil {
		return history.Event{}, fmt.Errorf("the store's log: %w", err)
	}
	i := slices.Index(l.locks, x.Lock)
	if i < 0 {
		return history.Event{}, fmt.Errorf("the store's log has lock %q, which is not in the run", x.Lock)
	}
	e := history.Event{
		Kind: history.EffectRead, Phase: history.Ok, User: u, Grant: x.Grant, Lock: uint16(i), Token: x.Token,
		Value: x.Value,
	}
	if x.Write {
		e.Kind = history.EffectWrite
	}
	if !x.OK {
		e.Phase, e.Code = history.Fail, history.CodeFenced
	}
	if x.Write && l.conditional {
		e.Code = history.CodeConditional
	}
	return e, nil
}

func (l *ledger) Close() { l.book.Close() }

// Sighting is the state that a grant last saw under a lock. Its next write is made from that state.
type Sighting struct {
	Grant   uint32
	Value   int64
	Version int64
}

// Sightings holds what one user's grants have seen, by lock.
type Sightings map[string]Sighting

// Of returns what the grant has seen. A grant that has seen nothing has version 0, which no value has.
func (s Sightings) Of(a Access) Sighting {
	if x := s[a.Lock]; x.Grant == a.Grant {
		return x
	}
	return Sighting{}
}

// StoreRefused returns the error of an access that did not meet the guard's condition within a store. version is the
// access's base version; the store does not return the current one.
func StoreRefused(guard string, version int64) error {
	r := lock.Reason{}
	switch guard {
	case GuardFence:
		r.Cause = lock.CauseTokenLower
	case GuardCASVersion:
		r = lock.Reason{Cause: lock.CauseVersionChanged, Seen: uint64(version)}
	case GuardCASOwner:
		r.Cause = lock.CauseOwnerChanged
	case GuardCondition, GuardDecr:
		r.Cause = lock.CauseConditionFalse
	case GuardUnique:
		r.Cause = lock.CauseKeyTaken
	}
	return Fenced(r, "the current value does not satisfy %s", guard)
}

// LacksToken returns the error of an access without the token that a guard needs.
func LacksToken(a Access) error {
	if a.Token == lock.NoToken {
		return ErrNoToken
	}
	return nil
}
