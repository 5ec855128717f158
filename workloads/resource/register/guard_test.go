package register

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// named is an access by a grant that has its own name and no token.
func named(user int, owner string) resource.Access {
	return resource.Access{Lock: "lock-0", User: history.MakeUser(user, 0), Grant: 1, Owner: owner}
}

func read(t *testing.T, c resource.Connection, a resource.Access, want int64) {
	t.Helper()
	if v, err := c.Read(t.Context(), a); err != nil || v != want {
		t.Errorf("read %d, %v; want %d", v, err, want)
	}
}

func write(t *testing.T, c resource.Connection, a resource.Access, value int64, want error) {
	t.Helper()
	if err := c.Write(t.Context(), a, value); !errors.Is(err, want) {
		t.Errorf("a write of %d ended with %v, want %v", value, err, want)
	}
}

// A write based on an old version is refused; the first writer wins, whichever holder it is.
func TestVersionsAreCompared(t *testing.T) {
	r := start(t, resource.GuardCASVersion)
	a, b := r.dial(), r.dial()
	write(t, a, named(0, ""), 7, resource.ErrFenced) // it has read nothing
	read(t, a, named(0, ""), 0)
	read(t, b, named(1, ""), 0)
	write(t, a, named(0, ""), 1, nil)
	write(t, b, named(1, ""), 1, resource.ErrFenced)
	write(t, a, named(0, ""), 2, nil) // the grant knows its own write
	later := named(0, "")
	later.Grant = 9
	write(t, a, later, 3, resource.ErrFenced) // reads of another grant do not count
	read(t, b, named(1, ""), 2)
	write(t, b, named(1, ""), 3, nil)
	r.Stop()
	conditions(t, r.Events, history.CodeConditional)
}

// conditions demands a code on all applied writes.
func conditions(t *testing.T, events []history.Event, code uint8) {
	t.Helper()
	for _, e := range events {
		if e.Kind == history.EffectWrite && e.Phase == history.Ok && e.Code != code {
			t.Errorf("%+v has another code than %q", e, history.CodeName(code))
		}
	}
}

// A write needs the token and the version. A write refused for its version does not make other tokens old.
func TestTokenAndVersion(t *testing.T) {
	r := start(t, resource.GuardFenceVersion)
	a, b := r.dial(), r.dial()
	old, young := named(0, ""), named(1, "")
	old.Token, young.Token = 1, 2
	read(t, a, old, 0)
	write(t, b, young, 7, resource.ErrFenced) // it has read nothing
	read(t, b, young, 0)
	write(t, a, old, 1, nil) // the token is in order
	write(t, b, young, 2, resource.ErrFenced)
	read(t, b, young, 1)
	write(t, b, young, 2, nil)
	read(t, a, old, 2)
	write(t, a, old, 3, resource.ErrFenced) // the version is right, the token is old
	r.Stop()
	conditions(t, r.Events, history.CodeConditional)
}

// Random names distinguish holders without ordering them: an old holder that registers late passes, and the new one
// is refused.
func TestOwnersHaveNoOrder(t *testing.T) {
	r := start(t, resource.GuardCASOwner)
	a, b := r.dial(), r.dial()
	write(t, a, named(0, "x"), 1, resource.ErrFenced) // it has not registered
	write(t, a, named(0, ""), 1, resource.ErrFenced)
	read(t, a, named(0, "x"), 0)
	read(t, b, named(1, "y"), 0)
	write(t, a, named(0, "x"), 1, resource.ErrFenced)
	write(t, b, named(1, "y"), 2, nil)
	read(t, a, named(0, "x"), 2)
	write(t, a, named(0, "x"), 3, nil)
	write(t, b, named(1, "y"), 4, resource.ErrFenced)
	r.Stop()
	conditions(t, r.Events, history.CodeNone)
	if n := len(r.Events); n != 9 { // accesses without an owner are refused, and recorded too
		t.Errorf("%d effects: %+v", n, r.Events)
	}
}

// A user with a higher token comes between the check and the write of another: both writes are applied.
func TestCheckThenWriteIsTwoSteps(t *testing.T) {
	for _, c := range []struct {
		guard  string
		points int
		want   error
	}{{resource.GuardCheckThenWrite, 1, nil}, {resource.GuardFence, 0, resource.ErrFenced}} {
		r := start(t, c.guard)
		older, newer := r.dial(), r.dial()
		overtake := func() {
			read(t, newer, by(1, 6), 0)
			write(t, newer, by(1, 6), 2, nil)
		}
		points := 0
		ctx := lock.Arm(t.Context(), func(_ context.Context, point string) {
			if point == resource.PointTokenChecked {
				points++
				overtake()
			}
		})
		if c.points == 0 {
			overtake()
		}
		if err := older.Write(ctx, by(0, 5), 1); !errors.Is(err, c.want) {
			t.Errorf("%s: the old holder's write ended with %v, want %v", c.guard, err, c.want)
		}
		if points != c.points {
			t.Errorf("%s: %d points were announced, want %d", c.guard, points, c.points)
		}
		write(t, older, by(0, 5), 3, resource.ErrFenced) // writers that are later than that are refused
		r.Stop()
	}
}

// service is a lock service that checks sequencers.
type service struct {
	generation lock.Token
	err        error
	closed     bool
}

func (s *service) CheckSequencer(_ context.Context, q lock.Sequencer) error {
	if s.err != nil {
		return s.err
	}
	if q.Lock != "lock-0" || q.Mode != lock.Shared || q.Generation != s.generation {
		return lock.ErrNotHeld
	}
	return nil
}

func (s *service) Close() error { s.closed = true; return nil }

func TestSequencersAreAskedAbout(t *testing.T) {
	s := &service{generation: 5}
	r := start(t, resource.GuardSequencer, func(o *resource.Options) {
		o.Sequencers = func(_ context.Context, access json.RawMessage) (resource.SequencerChecker, error) {
			if string(access) != `{"run":"x"}` {
				t.Errorf("access %s", access)
			}
			return s, nil
		}
	})
	c := r.dial()
	sharing := func(token lock.Token) resource.Access {
		a := by(0, token)
		a.Mode = lock.Shared
		return a
	}
	read(t, c, sharing(5), 0)
	write(t, c, sharing(5), 1, nil)
	write(t, c, by(0, 5), 1, resource.ErrFenced)              // another mode
	write(t, c, sharing(4), 1, resource.ErrFenced)            // an old generation
	write(t, c, sharing(lock.NoToken), 1, resource.ErrFenced) // none
	s.generation = 6
	write(t, c, sharing(5), 1, resource.ErrFenced) // before another user came
	read(t, c, sharing(6), 1)
	s.err = errors.New("no quorum")
	write(t, c, sharing(6), 2, resource.ErrRefused) // without an answer the write is refused
	r.Stop()
	if !s.closed {
		t.Error("the connection to the lock service is still open")
	}
	if n := len(r.Events); n != 7 {
		t.Errorf("%d effects on record, want all but the one that nobody could tell about", n)
	}
}

// TestAskThenWriteIsTwoSteps: the lock service is asked before the write, so a loss in between goes unnoticed. A
// sequencer checked after that is refused.
func TestAskThenWriteIsTwoSteps(t *testing.T) {
	t.Parallel()
	s := &service{generation: 5}
	r := start(t, resource.GuardAskThenWrite, func(o *resource.Options) {
		o.Sequencers = func(context.Context, json.RawMessage) (resource.SequencerChecker, error) { return s, nil }
	})
	older, newer := r.dial(), r.dial()
	sharing := func(user int, token lock.Token) resource.Access {
		a := by(user, token)
		a.Mode = lock.Shared
		return a
	}
	asked := lock.Arm(t.Context(), func(_ context.Context, point string) {
		if point != resource.PointTokenChecked || s.generation == 6 {
			return
		}
		s.generation = 6
		write(t, newer, sharing(1, 6), 2, nil)
	})
	if err := older.Write(asked, sharing(0, 5), 1); err != nil {
		t.Errorf("a write that was asked about in time ended with %v", err)
	}
	read(t, newer, sharing(1, 6), 1)
	write(t, older, sharing(0, 5), 3, resource.ErrFenced)
	r.Stop()
}

func TestSequencerNeedsTheService(t *testing.T) {
	r := launch(t, "127.0.0.1:0")
	r.Frame(wire.TypeHello)
	r.Send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{Name: "register", Index: -1, Format: wire.FormatRecords, Guard: resource.GuardSequencer}})
	if f := r.Frame(wire.TypeFailed).Failed; !strings.Contains(f.Error, "its address is missing") {
		t.Errorf("failed: %s", f.Error)
	}
	if err := <-r.Result; err == nil {
		t.Error("it ended well")
	}
}

// because checks the recorded causes, in order, with the effect of each.
func because(t *testing.T, r *running, want ...history.Event) {
	t.Helper()
	if len(r.Reasons) != len(want) {
		t.Fatalf("%d reasons, want %d: %+v", len(r.Reasons), len(want), r.Reasons)
	}
	for i, got := range r.Reasons {
		if got.Code != want[i].Code || got.Token != want[i].Token || got.Value != want[i].Value || got.Op == 0 || got.Op >= got.Seq {
			t.Errorf("%s with %d and %d, want %s with %d and %d", history.CodeName(got.Code), got.Token, got.Value,
				history.CodeName(want[i].Code), want[i].Token, want[i].Value)
		}
	}
}

// TestGuardsSayWhy: each refusal is followed by its cause and the deciding facts.
func TestGuardsSayWhy(t *testing.T) {
	r := start(t, resource.GuardFence)
	c := r.dial()
	read(t, c, by(1, 8), 0)
	write(t, c, by(0, 5), 1, resource.ErrFenced)
	write(t, c, by(0, lock.NoToken), 1, resource.ErrFenced)
	r.Stop()
	because(t, r, history.Event{Code: history.CauseTokenLower, Token: 8}, history.Event{Code: history.CauseTokenMissing})

	r = start(t, resource.GuardCASVersion)
	a, b := r.dial(), r.dial()
	write(t, a, named(0, ""), 1, resource.ErrFenced)
	read(t, a, named(0, ""), 0)
	read(t, b, named(1, ""), 0)
	write(t, a, named(0, ""), 1, nil)
	write(t, b, named(1, ""), 1, resource.ErrFenced)
	r.Stop()
	because(t, r, history.Event{Code: history.CauseVersionMissing}, history.Event{Code: history.CauseVersionChanged, Token: 1, Value: 2})

	r = start(t, resource.GuardCASOwner)
	c = r.dial()
	write(t, c, named(0, ""), 1, resource.ErrFenced)
	write(t, c, named(0, "x"), 1, resource.ErrFenced)
	r.Stop()
	because(t, r, history.Event{Code: history.CauseOwnerMissing}, history.Event{Code: history.CauseOwnerChanged})

	s := &service{generation: 6}
	r = start(t, resource.GuardSequencer, func(o *resource.Options) {
		o.Sequencers = func(context.Context, json.RawMessage) (resource.SequencerChecker, error) { return s, nil }
	})
	c = r.dial()
	a5 := by(0, 5)
	a5.Mode = lock.Shared
	write(t, c, a5, 1, resource.ErrFenced)
	r.Stop()
	because(t, r, history.Event{Code: history.CauseSequencerEnded, Token: 5})
}
