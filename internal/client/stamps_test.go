package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// answerTime is how long a slow service takes.
const answerTime = 20 * time.Millisecond

// withoutStalls drops the stalls that a busy machine adds.
func withoutStalls(events []history.Event) []history.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool { return e.Kind == history.Stall })
}

// TestStampsOfAHold has a slow service grant, renew and release. The record must hold what the service was called
// with, and when.
func TestStampsOfAHold(t *testing.T) {
	reg, address := startRegister(t, resource.GuardNone)
	y := newToy()
	y.slow, y.token = answerTime, 40
	r := inside(t, y)
	r.begin(protecting(address, resource.GuardNone, nil))
	for _, c := range []wire.Command{
		{Do: wire.DoAcquire, Lock: 1, Mode: lock.Shared.String()},
		{Do: wire.DoRenew, Lock: 1},
		{Do: wire.DoRenew, Lock: 1},
		{Do: wire.DoWrite, Lock: 1, Value: 7},
		{Do: wire.DoRead, Lock: 1},
		{Do: wire.DoCheck, Lock: 1},
		{Do: wire.DoRelease, Lock: 1},
	} {
		r.must(wire.OutcomeOK, c)
	}
	r.stop()
	reg.stop()
	events := withoutStalls(r.events)
	kinds := []history.Kind{history.Acquire, history.Renew, history.Renew, history.Write, history.Read, history.Check, history.Release}
	if len(events) != 2*len(kinds) || len(y.calls) != 4 {
		t.Fatalf("%d events, %d calls", len(events), len(y.calls))
	}
	grant := events[0].Seq
	for i, k := range kinds {
		invoke, ok := events[2*i], events[2*i+1]
		if invoke.Kind != k || ok.Kind != k || ok.Phase != history.Ok || ok.Op != invoke.Seq || invoke.Lock != 1 || ok.Lock != 1 {
			t.Errorf("operation %d is %+v, %+v", i, invoke, ok)
		}
		if invoke.Mode != uint8(lock.Shared) || ok.Mode != uint8(lock.Shared) || ok.Token != 41 || ok.Grant != grant {
			t.Errorf("%v ends %+v, its invoke is %+v", k, ok, invoke)
		}
		if k != history.Acquire && (invoke.Token != 41 || invoke.Grant != grant) {
			t.Errorf("%v begins %+v", k, invoke)
		}
	}
	for i, at := range []int{0, 2, 4, 12} { // the calls of the service among the events
		c, invoke, ok := y.calls[i], events[at], events[at+1]
		if invoke.Time > clock.Of(c.began) || ok.Time < clock.Of(c.answered) {
			t.Errorf("call %d from %d to %d is recorded from %d to %d", i, clock.Of(c.began), clock.Of(c.answered), invoke.Time, ok.Time)
		}
		if end, granted := c.grant.ValidUntil.Time(); granted && ok.Valid != clock.Of(end) {
			t.Errorf("call %d: valid is recorded %s after the end", i, time.Duration(ok.Valid-clock.Of(end)))
		}
		if i > 0 && c.given.ValidUntil != y.calls[i-1].grant.ValidUntil {
			t.Errorf("call %d was made with an older grant", i)
		}
	}
	if got := events[1].Value; got != clock.Of(y.calls[0].grant.Issued) {
		t.Errorf("issued is recorded %s after the send time", time.Duration(got-clock.Of(y.calls[0].grant.Issued)))
	}
	if w, g := events[6], events[9]; w.Value != 7 || g.Value != 7 {
		t.Errorf("written %+v, read %+v", w, g)
	}
	effects := slices.Concat(find(reg.events, history.EffectWrite, history.Ok), find(reg.events, history.EffectRead, history.Ok))
	for _, e := range effects {
		if e.Token != 41 || e.Grant != grant {
			t.Errorf("the resource was told %+v", e)
		}
	}
	if len(effects) != 2 {
		t.Errorf("%d effects", len(effects))
	}
}

// TestAccessesCarryTheGrant compares what accesses carry with the grant.
func TestAccessesCarryTheGrant(t *testing.T) {
	u := &user{s: &session{start: aStart(nil)}, name: history.MakeUser(1, 3)}
	h := &hold{u: u, lock: 1, op: 9, token: 5, mode: lock.Shared, grant: lock.Grant{ID: "g"}}
	if got, want := h.touch(), (resource.Access{Lock: "lock-1", User: u.name, Grant: 9, Token: 5, Mode: lock.Shared, Owner: "g"}); got != want {
		t.Errorf("told %+v, want %+v", got, want)
	}
}

// TestValidityOfAnotherKind records a grant without end, and one whose end is unknown. Both have the earliest time at
// which they can have been issued.
func TestValidityOfAnotherKind(t *testing.T) {
	for want, valid := range map[int64]lock.Validity{history.ValidEndless: lock.Endless(), history.ValidUnknown: lock.Unknown()} {
		y := newToy()
		y.slow, y.quiet, y.silent, y.valid = answerTime, true, true, func(time.Time) lock.Validity { return valid }
		r := inside(t, y)
		r.begin(nil)
		r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
		again := wire.OutcomeFail // already held
		if want == history.ValidUnknown {
			again = wire.OutcomeOK // the user learns of no loss, but may not rely on its grant
			y.mu.Lock()
			clear(y.holder)
			y.mu.Unlock()
		}
		r.must(again, wire.Command{Do: wire.DoAcquire})
		r.stop()
		asked, ok := find(r.events, history.Acquire, history.Invoke)[0], find(r.events, history.Acquire, history.Ok)[0]
		if ok.Valid != want || ok.Value != asked.Time {
			t.Errorf("recorded %+v, asked at %d", ok, asked.Time)
		}
	}
}

// tell has the service report a change, and returns when the Watcher has it.
func (t *toy) tell(test *testing.T, c lock.Change) {
	test.Helper()
	select {
	case t.news <- c:
	case <-time.After(patience):
		test.Fatal("nobody watches")
	}
}

// TestChangesAreRecorded reports a keep-alive, the loss and a change after it.
func TestChangesAreRecorded(t *testing.T) {
	y := newToy()
	y.news = make(chan lock.Change)
	y.valid = over
	r := inside(t, y)
	r.begin(nil)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire, Lock: 1, Mode: lock.Shared.String()})
	before, end := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	for range 3 { // when the third is taken, the first has been recorded
		y.tell(t, lock.Change{At: before, ValidUntil: lock.Until(end)})
	}
	if a := r.must(wire.OutcomeFail, wire.Command{Do: wire.DoAcquire, Lock: 1}); !strings.Contains(a.Error, "in hand") {
		t.Fatalf("it was kept alive, but: %s", a.Error)
	}
	learned := before.Add(time.Second)
	y.tell(t, lock.Change{At: learned, Lost: true})
	y.tell(t, lock.Change{At: time.Now(), ValidUntil: lock.Until(end.Add(time.Hour))})
	y.tell(t, lock.Change{At: time.Now(), Lost: true})
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoRelease, Lock: 1})
	r.stop()
	renewed, lost := find(r.events, history.Renewed, history.Info), find(r.events, history.Lost, history.Info)
	if len(renewed) != 3 || len(lost) != 1 {
		t.Fatalf("renewed %+v, lost %+v", renewed, lost)
	}
	grant := find(r.events, history.Acquire, history.Invoke)[0].Seq
	for i, e := range []history.Event{renewed[0], lost[0]} {
		if e.Valid != clock.Of(end) || e.Value != clock.Of([]time.Time{before, learned}[i]) {
			t.Errorf("%v: valid %s after the end, learned at %d", e.Kind, time.Duration(e.Valid-clock.Of(end)), e.Value)
		}
		if e.Grant != grant || e.Token != 1 || e.Mode != uint8(lock.Shared) || e.Lock != 1 {
			t.Errorf("recorded %+v", e)
		}
	}
}

// releasing is a locker that does something during a release.
type releasing struct {
	lock.Locker
	meanwhile func()
}

func (r releasing) Release(context.Context, lock.Grant) error { r.meanwhile(); return nil }

// TestChangesAfterTheRelease reports a loss while the release is under way: the release itself caused it.
func TestChangesAfterTheRelease(t *testing.T) {
	rec := wire.NewRecorder(wire.NewNodeConn(nil, io.Discard), wire.FormatRecords, nil)
	h := &hold{u: &user{s: &session{rec: rec}, base: t.Context(), calls: t.Context()}}
	h.u.locker = releasing{meanwhile: func() { h.changed(lock.Change{At: time.Now(), Lost: true}) }}
	if err := h.release(time.Minute); err != nil {
		t.Error(err)
	}
	if n, _ := rec.Counts(); n != 2 || h.lost {
		t.Errorf("%d events, lost %v", n, h.lost)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
}

// TestRenewalIsBelievedIn renews a grant that was over when it came.
func TestRenewalIsBelievedIn(t *testing.T) {
	y := newToy()
	y.valid = over
	r := inside(t, y)
	r.begin(nil)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	y.mu.Lock()
	y.valid = nil
	y.mu.Unlock()
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoRenew})
	if a := r.must(wire.OutcomeFail, wire.Command{Do: wire.DoAcquire}); !strings.Contains(a.Error, "in hand") {
		t.Errorf("it was renewed, but: %s", a.Error)
	}
	r.stop()
}

// TestLossFoundByAnOrder learns from the answer to its own renewal that the grant is gone.
func TestLossFoundByAnOrder(t *testing.T) {
	y := newToy()
	r := inside(t, y)
	r.begin(nil)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	y.mu.Lock()
	y.gone = true
	y.mu.Unlock()
	r.must(wire.OutcomeFail, wire.Command{Do: wire.DoRenew})
	r.stop()
	asked, failed := find(r.events, history.Renew, history.Invoke), find(r.events, history.Renew, history.Fail)
	lost := find(r.events, history.Lost, history.Info)
	if len(failed) != 1 || failed[0].Op != asked[0].Seq || failed[0].Code != history.CodeNotHeld || len(lost) != 1 || lost[0].Grant != failed[0].Grant {
		t.Errorf("failed %+v, lost %+v", failed, lost)
	}
}

// TestGrantIsRecordedBeforeItsPoint stops a user who has just been granted a lock: the grant is on record by then.
func TestGrantIsRecordedBeforeItsPoint(t *testing.T) {
	r := inside(t, newToy())
	r.begin(nil)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoArm, Point: workloads.PointAcquired, Action: wire.ActionWait})
	r.order(wire.Command{Do: wire.DoAcquire})
	at := r.frame(wire.TypePoint).Point.Time
	time.Sleep(answerTime)
	goesOn := clock.Now()
	r.order(wire.Command{Do: wire.DoContinue})
	r.frame(wire.TypeResult)
	r.frame(wire.TypeResult)
	r.stop()
	if ok := find(r.events, history.Acquire, history.Ok)[0]; ok.Time > at+(goesOn-at)/2 {
		t.Errorf("recorded %s after the point, where it stood for %s", time.Duration(ok.Time-at), time.Duration(goesOn-at))
	}
}

// TestEndWithoutInvoke ends an operation whose invoke found no room: an end alone means nothing.
func TestEndWithoutInvoke(t *testing.T) {
	u := &user{s: &session{rec: wire.NewRecorder(wire.NewNodeConn(nil, io.Discard), wire.FormatRecords, nil)}}
	for _, flushed := range []bool{true, false} {
		u.finished(&history.Event{Kind: history.Acquire, Phase: history.Ok}, wire.Stamp{Time: 1}, flushed)
	}
	if n, _ := u.s.rec.Counts(); n != 0 {
		t.Errorf("%d events", n)
	}
	if err := u.s.rec.Close(); err != nil {
		t.Error(err)
	}
}

// TestBackPressureHoldsUsersWithoutAGrant holds back a user without a grant until its time is over.
func TestBackPressureHoldsUsersWithoutAGrant(t *testing.T) {
	out, in := io.Pipe()
	u := &user{s: &session{rec: wire.NewRecorder(wire.NewNodeConn(nil, in), wire.FormatRecords, nil)}}
	u.s.rec.Append(&history.Event{Kind: history.Read, Phase: history.Invoke})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // the write is under way, and ends when the rest is read
		t.Fatal(err)
	}
	for !u.s.rec.Crowded() {
		u.s.rec.Append(&history.Event{Kind: history.Read, Phase: history.Invoke})
	}
	ctx, cancel := context.WithTimeout(t.Context(), answerTime)
	defer cancel()
	if err := u.admit(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("admitted: %v", err)
	} else if phase, _ := outcome(err); phase != history.Fail {
		t.Error("a user who was never let ask may have asked")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err := u.admit(t.Context()); err != nil {
		t.Errorf("not admitted when all was written: %v", err)
	}
	if err := u.s.rec.Close(); err != nil {
		t.Error(err)
	}
	_ = in.Close()
}
