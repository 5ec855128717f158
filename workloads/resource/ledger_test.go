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
	"github.com/lockquake/lockquake/workloads/resource/resourcetest"
)

// shelf is a store whose clock is the run's clock with an offset.
type shelf struct {
	moved  int64
	log    []Entry
	cells  map[string]Final
	late   int // attempts to open that fail
	closed bool
}

func (s *shelf) Open(context.Context, *wire.Start) error {
	if s.late--; s.late >= 0 {
		return errors.New("not yet")
	}
	return nil
}

func (s *shelf) Now(context.Context) (int64, error) { return clock.Now() + s.moved, nil }

func (s *shelf) Read(context.Context) ([]Entry, map[string]Final, error) { return s.log, s.cells, nil }

func (s *shelf) Close() { s.closed = true }

// tells starts a ledger over a shelf, calls then, and asks for the final values.
func tells(t *testing.T, s *shelf, then func()) (*wire.Result, *resourcetest.Process) {
	t.Helper()
	r := resourcetest.Start(t, func(in io.Reader, out io.Writer) error {
		return Drive(context.Background(), Options{In: in, Out: out}, "ledger", func(context.Context) (Body, error) { return &ledger{book: s}, nil })
	})
	r.Frame(wire.TypeHello)
	r.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{
		Name: "ledger", Index: -1, Format: wire.FormatRecords, Locks: []string{"lock-0", "lock-1"},
		Resource: &wire.Resource{Address: "store:1"},
	}})
	r.Frame(wire.TypeReady)
	then()
	r.Send(wire.Frame{Type: wire.TypeCommand, Command: &wire.Command{ID: 1, Do: wire.DoFinal, Lock: 1}})
	return r.Frame(wire.TypeResult).Result, r
}

// The log of a store becomes the resource's effects, in its order, dated by the run's clock and never early.
func TestLedgerReportsTheLog(t *testing.T) {
	s := &shelf{moved: int64(time.Hour), late: 2, cells: map[string]Final{"lock-0": {}, "lock-1": {Value: 7, Applied: 1}}}
	var before, after int64
	got, r := tells(t, s, func() {
		before = clock.Now()
		at := before + s.moved
		s.log = []Entry{
			{At: at, Lock: "lock-1", User: "client-2/0", Grant: 3, Token: 5, OK: true},
			{At: at + 10, Lock: "lock-1", User: "client-2/0", Grant: 3, Token: 5, Write: true, OK: true, Value: 7},
			{At: at + 20, Lock: "lock-1", User: "client-1/4", Grant: 9, Token: 4, Write: true, Value: 8},
		}
		after = clock.Now()
	})
	if got.Outcome != wire.OutcomeOK || got.Value != 7 || got.Count != 1 {
		t.Fatalf("the final read is %+v", got)
	}
	r.Stop()
	want := []history.Event{
		{Kind: history.EffectRead, Phase: history.Ok, User: history.MakeUser(1, 0), Grant: 3, Lock: 1, Token: 5},
		{Kind: history.EffectWrite, Phase: history.Ok, User: history.MakeUser(1, 0), Grant: 3, Lock: 1, Token: 5, Value: 7},
		{Kind: history.EffectWrite, Phase: history.Fail, Code: history.CodeFenced, User: history.MakeUser(0, 4), Grant: 9, Lock: 1, Token: 4, Value: 8},
	}
	if len(r.Events) != 4 || r.Events[3].Kind != history.Final {
		t.Fatalf("%d events: %+v", len(r.Events), r.Events)
	}
	for i, e := range r.Events[:3] {
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

// Whether the guard is conditional decides the code of each write of a store's log.
func TestLedgerMarksConditionalWrites(t *testing.T) {
	log := []Entry{
		{Lock: "lock-1", User: "client-1/0", OK: true}, {Lock: "lock-1", User: "client-1/0", Write: true, OK: true}, {Lock: "lock-1", User: "client-1/0", Write: true},
	}
	for conditional, want := range map[bool][]uint8{
		true: {0, history.CodeConditional, history.CodeConditional}, false: {0, 0, history.CodeFenced},
	} {
		l := &ledger{locks: []string{"lock-0", "lock-1"}, conditional: conditional}
		for i, x := range log {
			if e, err := l.event(x); err != nil || e.Code != want[i] {
				t.Errorf("conditional %t, entry %d: code %s, %v", conditional, i, history.CodeName(e.Code), err)
			}
		}
	}
	guards := []Guard{{Name: GuardNone}, {Name: GuardCASVersion, Conditional: true}}
	if Conditional(guards, GuardNone) || !Conditional(guards, GuardCASVersion) || Conditional(guards, GuardFence) {
		t.Error("another guard of the list is conditional")
	}
}

// A ledger rejects a log that cannot be dated, or that names what the run does not have.
func TestLedgerRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(*shelf)
		want string
	}{
		{"a clock that moved", func(s *shelf) { s.moved += int64(time.Minute) }, "cannot be dated"},
		{"another run's lock", func(s *shelf) { s.log = []Entry{{Lock: "lock-9", User: "client-1/0"}} }, "lock-9"},
		{"nobody", func(s *shelf) { s.log = []Entry{{Lock: "lock-0", User: "root"}} }, "root"},
		{"a lock without a row", func(s *shelf) { s.cells = map[string]Final{} }, "no value for lock-1"},
	} {
		s := &shelf{cells: map[string]Final{"lock-1": {}}}
		got, r := tells(t, s, func() { c.then(s) })
		if got.Outcome != wire.OutcomeFail || !strings.Contains(got.Error, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
		r.Stop()
	}
}
