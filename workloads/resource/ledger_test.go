package resource

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// shelf is a store whose clock is the run's, moved.
type shelf struct {
	moved  int64
	log    []entry
	cells  map[string]final
	late   int // attempts to open that fail
	closed bool
}

func (s *shelf) open(context.Context, *wire.Start) error {
	if s.late--; s.late >= 0 {
		return errors.New("not yet")
	}
	return nil
}

func (s *shelf) now(context.Context) (int64, error) { return clock.Now() + s.moved, nil }

func (s *shelf) read(context.Context) ([]entry, map[string]final, error) { return s.log, s.cells, nil }

func (s *shelf) close() { s.closed = true }

// tells starts a ledger over a shelf, lets something happen, and asks for what is left.
func tells(t *testing.T, s *shelf, then func()) (*wire.Result, *running) {
	t.Helper()
	r := process(t, func(in io.Reader, out io.Writer) error {
		return drive(context.Background(), Options{In: in, Out: out}, "ledger", func(context.Context) (body, error) { return &ledger{book: s}, nil })
	})
	r.frame(wire.TypeHello)
	r.send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{
		Name: "ledger", Index: -1, Format: wire.FormatRecords, Locks: []string{"lock-0", "lock-1"},
		Resource: &wire.Resource{Address: "store:1"},
	}})
	r.frame(wire.TypeReady)
	then()
	r.send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 1, Do: wire.DoFinal, Lock: 1}})
	return r.frame(wire.TypeResult).Result, r
}

// The log of a store becomes the resource's effects, in its order, dated by the run's clock and never early.
func TestLedgerTellsTheLog(t *testing.T) {
	s := &shelf{moved: int64(time.Hour), late: 2, cells: map[string]final{"lock-0": {}, "lock-1": {value: 7, applied: 1}}}
	var before, after int64
	got, r := tells(t, s, func() {
		before = clock.Now()
		at := before + s.moved
		s.log = []entry{
			{at: at, lock: "lock-1", user: "client-2/0", grant: 3, token: 5, ok: true},
			{at: at + 10, lock: "lock-1", user: "client-2/0", grant: 3, token: 5, write: true, ok: true, value: 7},
			{at: at + 20, lock: "lock-1", user: "client-1/4", grant: 9, token: 4, write: true, value: 8},
		}
		after = clock.Now()
	})
	if got.Outcome != wire.OutcomeOK || got.Value != 7 || got.Count != 1 {
		t.Fatalf("the final read is %+v", got)
	}
	r.stop()
	want := []history.Event{
		{Kind: history.EffectRead, Phase: history.Ok, User: history.MakeUser(1, 0), Grant: 3, Lock: 1, Token: 5},
		{Kind: history.EffectWrite, Phase: history.Ok, User: history.MakeUser(1, 0), Grant: 3, Lock: 1, Token: 5, Value: 7},
		{Kind: history.EffectWrite, Phase: history.Fail, Code: history.CodeFenced, User: history.MakeUser(0, 4), Grant: 9, Lock: 1, Token: 4, Value: 8},
	}
	if len(r.events) != 4 || r.events[3].Kind != history.Final {
		t.Fatalf("%d events: %+v", len(r.events), r.events)
	}
	for i, e := range r.events[:3] {
		if e.Time < before || e.Time > after+int64(maxClockShift) {
			t.Errorf("event %d is dated %v after it was written", i, time.Duration(e.Time-before))
		}
		e.Time, e.Seq, e.Op = 0, 0, 0
		if e != want[i] {
			t.Errorf("event %d is %+v, want %+v", i, e, want[i])
		}
	}
	if !s.closed {
		t.Error("the store is still open")
	}
}

// A log that cannot be dated, or that speaks of what the run has not, is no witness.
func TestLedgerRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(*shelf)
		want string
	}{
		{"a clock that moved", func(s *shelf) { s.moved += int64(time.Minute) }, "cannot be dated"},
		{"another run's lock", func(s *shelf) { s.log = []entry{{lock: "lock-9", user: "client-1/0"}} }, "lock-9"},
		{"nobody", func(s *shelf) { s.log = []entry{{lock: "lock-0", user: "root"}} }, "root"},
		{"a lock without a row", func(s *shelf) { s.cells = map[string]final{} }, "nothing under lock-1"},
	} {
		s := &shelf{cells: map[string]final{"lock-1": {}}}
		got, r := tells(t, s, func() { c.then(s) })
		if got.Outcome != wire.OutcomeFail || !strings.Contains(got.Error, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
		r.stop()
	}
}
