package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

func TestCommands(t *testing.T) {
	reg, address := startRegister(t, resource.GuardFence)
	r := inside(t, newToy())
	r.begin(protecting(address, resource.GuardFence, nil))
	if a := r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire, Lock: 1}); a.Value != 1 {
		t.Errorf("the token is 1, the result says %d", a.Value)
	}
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoWrite, Lock: 1, Value: 42})
	if a := r.must(wire.OutcomeOK, wire.Command{Do: wire.DoRead, Lock: 1}); a.Value != 42 {
		t.Errorf("read %d", a.Value)
	}
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoRenew, Lock: 1})
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoCheck, Lock: 1})
	for want, c := range map[string]wire.Command{
		"has lock-1 in hand":       {Do: wire.DoAcquire, Lock: 1},
		"no grant of lock-0":       {Do: wire.DoWrite},
		"lock is 2, the run has 2": {Do: wire.DoAcquire, Lock: 2},
		"user is -1":               {Do: wire.DoAcquire, User: -1},
		`unknown order "steal"`:    {Do: "steal"},
		"does not wait":            {Do: wire.DoContinue, Point: "nowhere"},
		"want wait or die":         {Do: wire.DoArm, Point: "acquired", Action: "sing"},
		"cannot die alone":         {Do: wire.DoArm, Point: "acquired", Action: wire.ActionDie},
	} {
		if a := r.must(wire.OutcomeFail, c); !strings.Contains(a.Error, want) {
			t.Errorf("%+v: got %q, want %q", c, a.Error, want)
		}
	}
	// Another user asks in vain, and then in time; the rig does not wait for the second acquire meanwhile.
	if a := r.must(wire.OutcomeFail, wire.Command{User: 1, Do: wire.DoAcquire, Lock: 1, Timeout: int64(20 * time.Millisecond)}); !strings.Contains(a.Error, "held by another") {
		t.Errorf("got %q", a.Error)
	}
	asked := r.order(wire.Command{User: 1, Do: wire.DoAcquire, Lock: 1})
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoCheck, Lock: 1})
	r.order(wire.Command{Do: wire.DoRelease, Lock: 1})
	for range 2 {
		if a := r.frame(wire.TypeResult).Result; a.Outcome != wire.OutcomeOK || a.ID != asked && a.ID != asked+2 {
			t.Errorf("got %+v", a)
		}
	}
	d := r.stop() // which releases what user 1 holds
	reg.stop()
	if n := checkExclusion(t, r.events); n != 2 || d.Cycles != 2 {
		t.Errorf("%d grants, %d counted", n, d.Cycles)
	}
	if got := find(r.events, history.Acquire, history.Fail); len(got) != 1 || got[0].Code != history.CodeContended || got[0].User.Index() != 1 {
		t.Errorf("failed acquires are %+v", got)
	} else if why := find(r.events, history.Reason, history.Info); len(why) != 1 || why[0].Op != got[0].Op || why[0].Code != history.CauseWaitOver || why[0].Value < int64(20*time.Millisecond) {
		t.Errorf("its reasons are %+v", why)
	}
	if got := find(r.events, history.Renew, history.Ok); len(got) != 1 || got[0].Valid == 0 || got[0].Grant == 0 {
		t.Errorf("renewals are %+v", got)
	}
	w := find(r.events, history.Write, history.Ok)[0]
	e := find(reg.events, history.EffectWrite, history.Ok)[0]
	if e.User != w.User || e.Grant != w.Grant || e.Token != w.Token || e.Value != w.Value || e.Time < r.events[w.Op-1].Time || e.Time > w.Time {
		t.Errorf("write %+v had effect %+v", w, e)
	}
}

// A waiter gives up on command, and another user closes its lock object while it holds a grant.
func TestGivingUpAndClosing(t *testing.T) {
	r := inside(t, newToy())
	r.begin(nil)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	if a := r.must(wire.OutcomeFail, wire.Command{User: 1, Do: wire.DoCancel}); !strings.Contains(a.Error, "no acquire is under way") {
		t.Errorf("got %q", a.Error)
	}
	waits := r.order(wire.Command{User: 1, Do: wire.DoAcquire, Timeout: int64(time.Minute)})
	var cancelled, over wire.Result
	for over.ID == 0 {
		if cancelled.Outcome != wire.OutcomeOK { // it has not begun to wait
			r.order(wire.Command{User: 1, Do: wire.DoCancel})
		}
		if a := *r.frame(wire.TypeResult).Result; a.ID == waits {
			over = a
		} else if cancelled.Outcome != wire.OutcomeOK {
			cancelled = a
		}
	}
	if over.Outcome == wire.OutcomeOK {
		t.Error("a waiter that gave up has the lock")
	}
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoClose, Timeout: int64(time.Minute)})
	if a := r.must(wire.OutcomeFail, wire.Command{Do: wire.DoRelease}); !strings.Contains(a.Error, "has closed its lock") {
		t.Errorf("got %q", a.Error)
	}
	r.stop()
	asked := find(r.events, history.Acquire, history.Invoke)
	told := find(r.events, history.Cancel, history.Info)
	if len(told) != 1 || told[0].Op != asked[1].Op || told[0].User != asked[1].User {
		t.Errorf("cancels are %+v, of %+v", told, asked)
	}
	if d := asked[1].Valid - asked[1].Time; d > int64(time.Minute) || d < int64(30*time.Second) { // it counts from before the invoke; without one of its own it is 5 s
		t.Errorf("the deadline is %v after the invoke", time.Duration(d))
	}
	closed, given := find(r.events, history.Close, history.Invoke), find(r.events, history.Release, history.Info)
	if len(closed) != 1 || closed[0].Valid <= closed[0].Time || len(find(r.events, history.Close, history.Ok)) != 1 {
		t.Errorf("closes are %+v", closed)
	}
	if len(given) != 1 || given[0].Grant != asked[0].Op || given[0].Code != history.CodeCancelled || given[0].Time > closed[0].Time {
		t.Errorf("what it had in hand ended by %+v", given)
	}
}

// The process, not one of its users, reports how often it was woken; if the lock does not count, it says so.
func TestNotificationsAreReported(t *testing.T) {
	service := newToy()
	service.woken = 17
	r := inside(t, service)
	r.begin(nil)
	if a := r.must(wire.OutcomeOK, wire.Command{Do: wire.DoNotifications, User: -1}); a.Count != 17 {
		t.Errorf("got %+v", a)
	}
	r.stop()
	r = inside(t, newToy())
	r.begin(nil)
	if a := r.must(wire.OutcomeFail, wire.Command{Do: wire.DoNotifications}); !strings.Contains(a.Error, "does not count the wake-ups") {
		t.Errorf("got %+v", a)
	}
	r.stop()
}

func TestModeOfAnAcquire(t *testing.T) {
	r := inside(t, newToy())
	r.begin(nil)
	for _, mode := range []string{"", "exclusive", "shared"} {
		r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire, Mode: mode})
		r.must(wire.OutcomeOK, wire.Command{Do: wire.DoRelease})
	}
	if a := r.must(wire.OutcomeFail, wire.Command{Do: wire.DoAcquire, Mode: "double"}); !strings.Contains(a.Error, "want exclusive or shared") {
		t.Errorf("got %q", a.Error)
	}
	r.stop()
	for _, p := range []history.Phase{history.Invoke, history.Ok} {
		var modes []uint8
		for _, e := range find(r.events, history.Acquire, p) {
			modes = append(modes, e.Mode)
		}
		if !slices.Equal(modes, []uint8{0, 0, 1}) {
			t.Errorf("%v: modes %v", p, modes)
		}
	}
}

func TestUnreachableResourceIsNotSent(t *testing.T) {
	reg, address := startRegister(t, resource.GuardNone)
	r := inside(t, newToy())
	r.begin(protecting(address, resource.GuardNone, nil))
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	reg.stop()
	r.must(wire.OutcomeInfo, wire.Command{Do: wire.DoWrite, Value: 1}) // the connection breaks: the outcome is unknown
	r.must(wire.OutcomeFail, wire.Command{Do: wire.DoWrite, Value: 1}) // there is none any more: certainly not
	r.stop()
	info, fail := find(r.events, history.Write, history.Info), find(r.events, history.Write, history.Fail)
	if len(info) != 1 || len(fail) != 1 || info[0].Code != history.CodeConnection || fail[0].Code != history.CodeConnection {
		t.Errorf("got %+v and %+v", info, fail)
	}
}

func TestWaitAtPoint(t *testing.T) {
	reg, address := startRegister(t, resource.GuardNone)
	r := inside(t, newToy())
	r.begin(protecting(address, resource.GuardNone, nil))
	for _, c := range []struct{ point, do string }{
		{"toy-sent", wire.DoAcquire},
		{workloads.PointRead, wire.DoRead},
		{workloads.PointWrite, wire.DoWrite},
		{workloads.PointRelease, wire.DoRelease},
	} {
		r.must(wire.OutcomeOK, wire.Command{Do: wire.DoArm, Point: c.point, Action: wire.ActionWait})
		id := r.order(wire.Command{Do: c.do, Timeout: int64(patience)})
		if p := r.frame(wire.TypePoint).Point; p.Point != c.point || p.User != 0 || p.Time == 0 {
			t.Errorf("point is %+v", p)
		}
		select {
		case f := <-r.frames:
			t.Fatalf("%s at %s did not wait: %+v", c.do, c.point, f)
		case <-time.After(30 * time.Millisecond):
		}
		let := r.order(wire.Command{Do: wire.DoContinue, Point: c.point})
		for range 2 { // in any order
			if a := r.frame(wire.TypeResult).Result; a.ID != id && a.ID != let || a.Outcome != wire.OutcomeOK {
				t.Errorf("%s: %+v", c.do, a)
			}
		}
		// Once only.
		if c.do == wire.DoRead {
			r.must(wire.OutcomeOK, wire.Command{Do: c.do})
		}
	}
	// A stop releases a user that waits at a point; arm also works beside a workload.
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoArm, Point: workloads.PointAcquired, Action: wire.ActionWait})
	r.order(wire.Command{Do: wire.DoAcquire})
	r.frame(wire.TypePoint)
	r.send(wire.Frame{Type: wire.TypeStop})
	if a := r.frame(wire.TypeResult).Result; a.Outcome != wire.OutcomeOK {
		t.Errorf("the acquire that waited ended %+v", a)
	}
	r.frame(wire.TypeDone)
	<-r.ended
	checkExclusion(t, r.events)
	reg.stop()
}

func TestArmDuringWorkload(t *testing.T) {
	r := inside(t, newToy())
	r.begin(withWorkload("acquire-release", "{}", 2))
	if a := r.must(wire.OutcomeFail, wire.Command{Do: wire.DoAcquire}); !strings.Contains(a.Error, "runs a workload") {
		t.Errorf("got %q", a.Error)
	}
	r.order(wire.Command{User: 1, Do: wire.DoArm, Point: workloads.PointRelease, Action: wire.ActionWait})
	for got := 0; got < 2; got++ { // the answer, and the user at the point, in any order
		if f := <-r.frames; f.Type != wire.TypePoint && (f.Type != wire.TypeResult || f.Result.Outcome != wire.OutcomeOK) {
			t.Fatalf("got %+v", f)
		}
	}
	r.must(wire.OutcomeOK, wire.Command{User: 1, Do: wire.DoContinue})
	r.must(wire.OutcomeOK, wire.Command{User: 5, Do: wire.DoAcquire, Lock: 1})
	r.stop()
	if checkExclusion(t, r.events) == 0 {
		t.Error("no grants")
	}
}

// A loss is recorded and ends the hold; a user without a check goes on and writes.
func TestLoss(t *testing.T) {
	for check, outcome := range map[string]string{
		checkNothing: wire.OutcomeOK, checkSignal: wire.OutcomeFail, checkValidity: wire.OutcomeFail,
	} {
		reg, address := startRegister(t, resource.GuardNone)
		y := newToy()
		r := inside(t, y)
		r.begin(protecting(address, resource.GuardNone, func(s *wire.Start) { s.Check = check }))
		r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
		r.must(wire.OutcomeOK, wire.Command{Do: wire.DoWrite, Value: 1})
		y.loseAll()
		r.await(1, history.Lost, history.Info)
		r.must(outcome, wire.Command{Do: wire.DoWrite, Value: 2})
		r.must(wire.OutcomeFail, wire.Command{Do: wire.DoRelease})
		r.stop()
		reg.stop()
		lost := find(r.events, history.Lost, history.Info)
		if len(lost) != 1 || lost[0].Grant == 0 || lost[0].Valid == 0 || lost[0].Value == 0 {
			t.Errorf("%q: losses are %+v", check, lost)
		}
		wrote := map[string]int{wire.OutcomeOK: 2, wire.OutcomeFail: 1}[outcome]
		if n := len(find(reg.events, history.EffectWrite, history.Ok)); n != wrote {
			t.Errorf("%q: %d writes reached the resource, want %d", check, n, wrote)
		}
		if got := find(r.events, history.Release, history.Fail); len(got) != 1 || got[0].Code != history.CodeNotHeld {
			t.Errorf("%q: releases are %+v", check, got)
		}
	}
}

// An expired validity stops a user that checks it, although no loss was reported. One that has not expired does not.
func TestCheckValidity(t *testing.T) {
	reg, address := startRegister(t, resource.GuardNone)
	y := newToy()
	y.silent = true
	r := inside(t, y)
	r.begin(protecting(address, resource.GuardNone, func(s *wire.Start) { s.Check = checkValidity }))
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoWrite, Value: 1})
	y.mu.Lock()
	y.valid = over
	y.mu.Unlock()
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire, Lock: 1})
	if a := r.must(wire.OutcomeFail, wire.Command{Do: wire.DoWrite, Lock: 1, Value: 2}); a.Error != workloads.ErrStopped.Error() {
		t.Errorf("got %q", a.Error)
	}
	r.must(wire.OutcomeFail, wire.Command{Do: wire.DoRenew})
	r.stop()
	reg.stop()
}

// A grant may end between two looks.
func TestAValidityEndsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hold{u: &user{s: &session{start: aStart(func(s *wire.Start) { s.Check = checkValidity })}}, valid: lock.Until(time.Now().Add(time.Second))}
		before := h.look()
		time.Sleep(time.Second)
		if after := h.look(); before != nil || !errors.Is(after, workloads.ErrStopped) {
			t.Errorf("before its end: %v; after it: %v", before, after)
		}
	})
}

// With a margin a holder stops while its grant is still valid.
func TestAMarginStopsEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hold{u: &user{s: &session{start: aStart(func(s *wire.Start) { s.Check, s.Margin = checkValidity, int64(400*time.Millisecond) })}}, valid: lock.Until(time.Now().Add(time.Second))}
		time.Sleep(500 * time.Millisecond)
		early := h.look()
		time.Sleep(200 * time.Millisecond)
		if late := h.look(); early != nil || !errors.Is(late, workloads.ErrStopped) {
			t.Errorf("with 500 ms left: %v; with 300 ms left: %v", early, late)
		}
	})
}

func TestRenewalsGoOnUntilTheLoss(t *testing.T) {
	y := newToy()
	r := inside(t, y)
	r.begin(func(s *wire.Start) {
		s.Renew = true
		s.Access = []byte(`{"backend":"toy","lock":"plain","ttl_ns":60000000}`)
	})
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	renewed := func(n int) {
		t.Helper()
		wait.Until(t, patience, fmt.Sprintf("%d renewals", n), func() bool {
			y.mu.Lock()
			defer y.mu.Unlock()
			return y.renewals >= n
		})
	}
	renewed(4)
	y.mu.Lock()
	y.gone = true
	last := y.renewals + 1
	y.mu.Unlock()
	renewed(last)
	r.await(1, history.Lost, history.Info)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoRelease})
	y.mu.Lock()
	n := y.renewals
	y.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	r.stop()
	ok, fail, lost := find(r.events, history.Renew, history.Ok), find(r.events, history.Renew, history.Fail), find(r.events, history.Lost, history.Info)
	if len(ok) < 4 || len(fail) != 1 || len(lost) != 1 || len(ok)+1 != n || y.renewals != n {
		t.Errorf("%d renewals went well, %d failed, %d losses, the service saw %d and then %d", len(ok), len(fail), len(lost), n, y.renewals)
	}
	granted := find(r.events, history.Acquire, history.Ok)[0]
	for i, e := range ok {
		if i > 0 && e.Valid <= ok[i-1].Valid || e.Grant != granted.Op {
			t.Errorf("renewal %d is %+v", i, e)
		}
	}
}

// TestAStopIsNoWaitThatWasGivenUp stops a run whose one user waits for the other's lock: this is not a give-up, and
// no reason claims one.
func TestAStopIsNoWaitThatWasGivenUp(t *testing.T) {
	reg, address := startRegister(t, resource.GuardNone)
	r := inside(t, newToy())
	r.begin(protecting(address, resource.GuardNone, nil))
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoAcquire})
	r.must(wire.OutcomeOK, wire.Command{User: 1, Do: wire.DoArm, Point: "toy-sent", Action: wire.ActionWait})
	r.order(wire.Command{User: 1, Do: wire.DoAcquire, Timeout: int64(time.Minute)})
	r.frame(wire.TypePoint)
	r.send(wire.Frame{Type: wire.TypeStop})
	if a := r.frame(wire.TypeResult).Result; a.Outcome != wire.OutcomeFail {
		t.Errorf("the wait ended with %+v", a)
	}
	r.frame(wire.TypeDone)
	<-r.result
	<-r.ended
	reg.stop()
	if got, why := find(r.events, history.Acquire, history.Fail), find(r.events, history.Reason, history.Info); len(got) != 1 || len(why) != 0 {
		t.Errorf("acquires that failed: %+v, for these reasons: %+v", got, why)
	}
}

// TestTakingALockOnceMore: a hold lasts until its last release. A release that is certainly refused shows a loss.
func TestTakingALockOnceMore(t *testing.T) {
	service := newToy()
	service.reenters = true
	r := inside(t, service)
	r.begin(nil)
	do := func(what string) string {
		return r.must(wire.OutcomeOK, wire.Command{Do: what}).Grant
	}
	id := do(wire.DoReenter) // it holds nothing: that is an acquire
	if again := do(wire.DoReenter); again == "" || again != id {
		t.Errorf("the grant is %q, and taken once more it is %q", id, again)
	}
	r.must(wire.OutcomeFail, wire.Command{Do: wire.DoAcquire})
	do(wire.DoRelease)
	do(wire.DoRenew)
	do(wire.DoRelease)
	r.must(wire.OutcomeFail, wire.Command{Do: wire.DoRelease})

	do(wire.DoAcquire)
	do(wire.DoReenter)
	service.mu.Lock()
	service.holder["lock-0"] = ""
	service.mu.Unlock()
	r.must(wire.OutcomeFail, wire.Command{Do: wire.DoRelease})
	service.mu.Lock()
	delete(service.again, "lock-0")
	service.mu.Unlock()
	do(wire.DoReenter) // what it had is lost: an acquire again
	do(wire.DoReenter)
	r.must(wire.OutcomeOK, wire.Command{Do: wire.DoClose, Timeout: int64(time.Minute)})
	r.stop()
	var got []string
	for _, e := range r.events {
		if e.Phase != history.Invoke && e.Kind != history.Stall {
			got = append(got, e.Kind.String()+" "+e.Phase.String())
		}
	}
	want := []string{
		"acquire ok", "reenter ok", "leave ok", "renew ok", "release ok", "acquire ok", "reenter ok", "leave fail", "lost info",
		"acquire ok", "reenter ok", "leave info", "release info", "close ok",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if e := find(r.events, history.Reenter, history.Ok)[0]; e.Valid <= e.Time || e.Grant == 0 {
		t.Errorf("the re-entry is %+v", e)
	}
}
