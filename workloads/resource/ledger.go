package resource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// The nodes of a resource that is a real service: the service, and the process that reads its log.
const (
	storeNode  = "store"
	ledgerNode = "ledger"
)

// book is what a ledger does with one kind of store. Its methods are called one at a time.
type book interface {
	// open makes one attempt to connect and to lay out the empty store.
	open(ctx context.Context, s *wire.Start) error
	// now asks the store for its clock, in ns of any origin: the clock that dates its log.
	now(ctx context.Context) (int64, error)
	// read returns the whole log in the order of the store's clock, and what stands under each lock.
	read(ctx context.Context) (log []entry, cells map[string]final, err error)
	close()
}

// entry is one line of a store's log.
type entry struct {
	at    int64 // ns of the store's clock
	lock  string
	user  string
	grant uint32
	token uint64
	write bool
	ok    bool
	value int64
}

const (
	openTimeout = 25 * time.Second // a store that starts with the run may need most of it
	openPause   = 50 * time.Millisecond
	// closeWait bounds the closing of one connection.
	closeWait = time.Second
	// clockLooks is how often the store's clock is asked for: the narrowest bracket counts.
	clockLooks = 50
	// maxClockShift is by how much the store's clock may have moved against the run's in the course of it.
	maxClockShift = 5 * time.Millisecond
)

// ledger is the body of the process beside a store.
type ledger struct {
	book   book
	rec    *wire.Recorder
	locks  []string
	offset int64 // ns from the store's clock to the run's, at the start
	cells  map[string]final
}

// watched is false: nobody waits for a ledger.
func (l *ledger) watched() bool { return false }

func (l *ledger) start(ctx context.Context, s *wire.Start, rec *wire.Recorder) (string, error) {
	if s.Resource == nil {
		return "", errors.New("nobody said where the store is")
	}
	l.rec, l.locks = rec, s.Locks
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		err := l.book.open(ctx, s)
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

// compare returns what is to be added to the store's clock for the run's, and by how much that may be wrong.
func (l *ledger) compare(ctx context.Context) (offset, wrong int64, err error) {
	wrong = int64(time.Hour)
	for range clockLooks {
		before := clock.Now()
		at, err := l.book.now(ctx)
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

// final reads the whole log at the first call.
func (l *ledger) final(ctx context.Context, number int) (final, error) {
	if number < 0 || number >= len(l.locks) {
		return final{}, fmt.Errorf("there is no lock with number %d of %d", number, len(l.locks))
	}
	if l.cells == nil {
		if err := l.tell(ctx); err != nil {
			return final{}, err
		}
	}
	f, ok := l.cells[l.locks[number]]
	if !ok {
		return final{}, fmt.Errorf("the store has nothing under %s", l.locks[number])
	}
	l.rec.Append(&history.Event{Kind: history.Final, Phase: history.Info, Lock: uint16(number), Value: f.value, Valid: f.applied})
	return f, nil
}

// tell turns the store's log into events. The log is dated late by the error of the comparison, never early: an effect must
// not come before the grant that it belongs to.
func (l *ledger) tell(ctx context.Context) error {
	log, cells, err := l.book.read(ctx)
	if err != nil {
		return fmt.Errorf("the store's log: %w", err)
	}
	offset, wrong, err := l.compare(ctx)
	if err != nil {
		return err
	}
	if d := time.Duration(offset - l.offset).Abs(); d > maxClockShift {
		return fmt.Errorf("the store's clock has moved by %v in the course of the run: its log cannot be dated", d)
	}
	for _, x := range log {
		e, err := l.event(x)
		if err != nil {
			return err
		}
		l.rec.AppendAt(&e, x.at+offset+wrong)
	}
	l.cells = cells
	return nil
}

func (l *ledger) event(x entry) (history.Event, error) {
	u, err := history.ParseUser(x.user)
	if err != nil {
		return history.Event{}, fmt.Errorf("the store's log: %w", err)
	}
	i := slices.Index(l.locks, x.lock)
	if i < 0 {
		return history.Event{}, fmt.Errorf("the store's log names lock %q, which the run has not", x.lock)
	}
	e := history.Event{
		Kind: history.EffectRead, Phase: history.Ok, User: u, Grant: x.grant, Lock: uint16(i), Token: x.token, Value: x.value,
	}
	if x.write {
		e.Kind = history.EffectWrite
	}
	if !x.ok {
		e.Phase, e.Code = history.Fail, history.CodeFenced
	}
	return e, nil
}

func (l *ledger) close() { l.book.close() }

// sighting is what a grant has seen last under a lock: what its next write is made from.
type sighting struct {
	grant   uint32
	value   int64
	version int64
}

// sightings is what one user's grants have seen, by lock.
type sightings map[string]sighting

// of returns what the grant has seen; one that has seen nothing gets version 0, which is nobody's.
func (s sightings) of(a Access) sighting {
	if x := s[a.Lock]; x.grant == a.Grant {
		return x
	}
	return sighting{}
}

// lacksToken is the error of an access without the token that a guard wants.
func lacksToken(a Access) error {
	if a.Token == lock.NoToken {
		return fmt.Errorf("%w: it wants a fencing token", ErrFenced)
	}
	return nil
}
