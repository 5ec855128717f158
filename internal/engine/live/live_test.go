package live

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

func granted(u history.User, op uint32, valid int64) history.Event {
	return history.Event{Time: clock.Now(), Op: op, User: u, Grant: op, Kind: history.Acquire, Phase: history.Ok, Valid: valid}
}

func released(u history.User, grant uint32) history.Event {
	return history.Event{Time: clock.Now(), User: u, Grant: grant, Kind: history.Release, Phase: history.Invoke}
}

func TestNextGrantWaitsForAFreshOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes between the grant and the question
		l, a, b := New(), history.MakeUser(0, 0), history.MakeUser(1, 0)
		l.Observe(0, []history.Event{granted(a, 1, history.ValidEndless)}, false)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if h, err := l.GrantAfter(ctx, clock.Now(), -1); err == nil {
			t.Fatalf("an old grant %+v was taken for a fresh one", h)
		}
		time.AfterFunc(5*time.Millisecond, func() { l.Observe(1, []history.Event{granted(b, 7, history.ValidEndless)}, false) })
		h, err := l.GrantAfter(t.Context(), clock.Now(), -1)
		if err != nil || h.User != b || h.Grant != 7 {
			t.Fatalf("got %+v, %v; want grant 7 of %v", h, err, b)
		}
	})
}

func TestNextGrantLooksAtItsLockOnly(t *testing.T) {
	l, a := New(), history.MakeUser(0, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	time.AfterFunc(2*time.Millisecond, func() { l.Observe(0, []history.Event{granted(a, 1, history.ValidEndless)}, false) })
	if h, err := l.GrantAfter(ctx, clock.Now(), 3); err == nil {
		t.Fatalf("a grant of lock %d was taken for one of lock 3", h.Lock)
	}
}

func TestReleaseBegunIsNotHeld(t *testing.T) {
	l, a := New(), history.MakeUser(0, 0)
	l.Observe(0, []history.Event{granted(a, 1, 10), released(a, 1)}, false)
	if l.held(a, 1) {
		t.Fatal("after its release invoke the grant still counts as held")
	}
	l.Observe(0, []history.Event{granted(a, 5, 10), released(a, 1)}, false)
	if !l.held(a, 5) {
		t.Fatal("the release of an older grant ended the newer one")
	}
}

func TestRenewalMovesTheValidity(t *testing.T) {
	l, a := New(), history.MakeUser(0, 0)
	renewed := history.Event{Time: clock.Now(), User: a, Grant: 1, Kind: history.Renewed, Phase: history.Info, Valid: 99}
	l.Observe(0, []history.Event{granted(a, 1, 10), renewed}, true)
	if h, _ := l.Last(a, -1); h.Valid != 99 {
		t.Fatalf("validity is %d, want 99", h.Valid)
	}
	renew := history.Event{Time: clock.Now(), User: a, Grant: 1, Kind: history.Renew, Phase: history.Ok, Valid: 199}
	failed := history.Event{Time: clock.Now(), User: a, Grant: 1, Kind: history.Renew, Phase: history.Fail, Valid: 299}
	l.Observe(0, []history.Event{renew, failed}, true)
	if h, _ := l.Last(a, -1); h.Valid != 199 {
		t.Fatalf("after its user renewed it, and failed to do it again, validity is %d, want 199", h.Valid)
	}
}

// TestAStreamIsReadToItsEnd: the end of the grant ends the wait. Otherwise a silence must pass, which counts from the
// last event and grows with the delay of the events before.
func TestAStreamIsReadToItsEnd(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		name  string
		delay time.Duration // of the grant's event
		aged  time.Duration // since it arrived
		grant uint32        // released after 10 ms
		held  bool
		want  time.Duration
	}{
		{"another grant ends", 0, 0, 2, true, ms(10) + Silence},
		{"the grant ends", 0, 0, 1, false, Silence},
		{"a busy machine", ms(100), 0, 2, true, ms(210)},
		{"a while ago", ms(100), 2 * delaysKept, 2, true, ms(10) + Silence},
		{"a machine that stood still", time.Minute, 0, 2, true, ms(10) + maxSilence},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, a := New(), history.MakeUser(0, 0)
				first := granted(a, 1, 10)
				first.Time = clock.Now() - int64(c.delay)
				l.Observe(0, []history.Event{first}, false)
				time.Sleep(c.aged)
				start := clock.Now()
				time.AfterFunc(ms(10), func() { l.Observe(0, []history.Event{released(0, c.grant)}, false) })
				held, _, err := l.Keeps(t.Context(), a, 1)
				if d := time.Duration(clock.Now() - start); held != c.held || d != c.want || err != nil {
					t.Errorf("held %t after %v, want %t after %v: %v", held, d, c.held, c.want, err)
				}
			})
		})
	}
}

func TestEventsCountSinceTheLastAcquireOrder(t *testing.T) {
	l, a := New(), history.MakeUser(0, 0)
	l.Observe(0, []history.Event{granted(a, 1, 10)}, true)
	o := occurrence{a, -1, history.Acquire, history.Ok}
	if l.seen[o] != 1 {
		t.Fatal("the event was not noted")
	}
	l.Forget(a)
	if l.seen[o] != 0 {
		t.Fatal("an event before the order still counts")
	}
}

func TestPointIsReached(t *testing.T) {
	l, a := New(), history.MakeUser(0, 2)
	time.AfterFunc(2*time.Millisecond, func() { l.Reached(0, wire.Point{User: 2, Point: "set-done"}) })
	if err := l.AwaitPoint(t.Context(), a, "set-done"); err != nil {
		t.Fatal(err)
	}
}

func TestWaitReportsItsEnd(t *testing.T) {
	want := errors.New("not within 5ms")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Millisecond, want)
	defer cancel()
	if err := New().news.wait(ctx, new(sync.Mutex), func() bool { return false }); !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func TestParseOccurrence(t *testing.T) {
	if o, err := parseOccurrence("acquire ok"); err != nil || o != (occurrence{kind: history.Acquire, phase: history.Ok}) {
		t.Fatalf("acquire ok: %v, %v", o, err)
	}
	if o, err := parseOccurrence("lost"); err != nil || o != (occurrence{kind: history.Lost, phase: history.Info}) {
		t.Fatalf("lost: %v, %v", o, err)
	}
	if _, err := parseOccurrence("acquire maybe"); err == nil {
		t.Fatal("an unknown phase was taken")
	}
}

func TestAUserMayHoldTwoLocks(t *testing.T) {
	l, a := New(), history.MakeUser(0, 0)
	first, second := granted(a, 1, history.ValidEndless), granted(a, 2, history.ValidEndless)
	second.Lock, second.Time = 1, first.Time+1
	l.Observe(0, []history.Event{first, second}, true)
	if h, err := l.GrantAfter(t.Context(), 0, 0); err != nil || h.Grant != 1 {
		t.Fatalf("holder of lock 0: %+v, %v; want grant 1", h, err)
	}
	if all, held := l.Granted(); all != 2 || held != 2 {
		t.Errorf("%d grants, %d in hand", all, held)
	}
	for lock, want := range map[int]uint32{0: 1, 1: 2, -1: 2} {
		if h, ok := l.Last(a, lock); !ok || h.Grant != want {
			t.Errorf("last grant of lock %d: %+v, want grant %d", lock, h, want)
		}
	}
	if l.seen[occurrence{a, 1, history.Acquire, history.Ok}] != 1 {
		t.Fatal("an await that names lock 1 does not see its grant")
	}
	if dead := l.RemoveHolds(0); len(dead) != 2 {
		t.Fatalf("%d holds of the dead client, want 2", len(dead))
	}
}

func lost(u history.User, grant uint32) history.Event {
	return history.Event{Time: clock.Now(), User: u, Grant: grant, Kind: history.Lost, Phase: history.Info}
}

func TestALostGrantIsNotHeld(t *testing.T) {
	l, a := New(), history.MakeUser(0, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	time.AfterFunc(2*time.Millisecond, func() {
		l.Observe(0, []history.Event{granted(a, 1, history.ValidEndless), lost(a, 1)}, false)
	})
	if h, err := l.GrantAfter(ctx, clock.Now(), -1); err == nil {
		t.Errorf("the lost grant %+v was taken for one in hand", h)
	}
	if h, err := l.GrantAfter(ctx, 0, -1); err == nil {
		t.Errorf("the lost grant %+v was taken for one in hand", h)
	}
	if l.held(a, 1) {
		t.Error("a lost grant still counts as held")
	}
}

func TestHoldsOfTheDeadAreRemoved(t *testing.T) {
	l, a, b := New(), history.MakeUser(0, 0), history.MakeUser(1, 0)
	l.Observe(0, []history.Event{granted(a, 1, 10)}, false)
	l.Observe(1, []history.Event{granted(b, 1, 10)}, false)
	if dead := l.RemoveHolds(0); len(dead) != 1 || dead[0].User != a || l.held(a, 1) || !l.held(b, 1) {
		t.Errorf("buried %+v", dead)
	}
}

// TestTheFirstGrantIsTheEarliest, whichever client is heard first.
func TestTheFirstGrantIsTheEarliest(t *testing.T) {
	l := New()
	if at := l.FirstGrant(); at != 0 {
		t.Errorf("before any grant it is %d", at)
	}
	for i, at := range []int64{20, 10, 30} {
		e := granted(history.MakeUser(i, 0), 1, history.ValidEndless)
		e.Time = at
		l.Observe(i, []history.Event{e}, false)
	}
	if at := l.FirstGrant(); at != 10 {
		t.Errorf("it is told to be at %d, want 10", at)
	}
}

// TestMain lets the clock follow the time of a bubble.
func TestMain(m *testing.M) {
	clock.Simulate()
	os.Exit(m.Run())
}
