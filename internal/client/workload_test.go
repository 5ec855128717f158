package client

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

func withWorkload(use, params string, users int) func(*wire.Start) {
	return func(s *wire.Start) {
		s.Workload = &wire.Workload{Use: use, Users: users, Total: 2 * users, Params: json.RawMessage(params)}
	}
}

// checkExclusion checks that no two certain holds of one lock overlap, and that none stays open.
func checkExclusion(t *testing.T, events []history.Event) (grants int) {
	t.Helper()
	holder := map[uint16]uint32{}
	for _, e := range events {
		switch {
		case e.Kind == history.Acquire && e.Phase == history.Ok:
			if h := holder[e.Lock]; h != 0 {
				t.Fatalf("grant %d comes while %d holds: %+v", e.Grant, h, e)
			}
			if e.Grant != e.Op || e.Token == 0 || e.Tries != 1 || e.Value == 0 || e.Value > e.Time || e.Valid <= e.Value {
				t.Fatalf("acquire ok is %+v", e)
			}
			holder[e.Lock] = e.Grant
			grants++
		case e.Kind == history.Release && e.Phase == history.Invoke:
			if holder[e.Lock] != e.Grant {
				t.Fatalf("release of grant %d while %d holds", e.Grant, holder[e.Lock])
			}
			holder[e.Lock] = 0
		}
	}
	for l, g := range holder {
		if g != 0 {
			t.Errorf("grant %d of lock %d was never released", g, l)
		}
	}
	return grants
}

func TestAcquireReleaseIsRecorded(t *testing.T) {
	for _, format := range []string{wire.FormatRecords, wire.FormatJSONL} {
		r := inside(t, newToy())
		r.begin(func(s *wire.Start) {
			withWorkload("acquire-release", `{"locks": 2}`, 8)(s)
			s.Format = format
		})
		r.until("200 grants, and events of all users", func(events []history.Event) bool {
			return len(find(events, history.Acquire, history.Ok)) >= 200 && len(whose(events)) == 8
		})
		d := r.stop()
		if n := checkExclusion(t, r.events); n == 0 || int64(n) != d.Cycles {
			t.Errorf("%s: %d grants on record, %d counted", format, n, d.Cycles)
		}
		if len(d.Errors) > 0 { // users that wait when the run stops met no error
			t.Errorf("%s: errors %v", format, d.Errors)
		}
		if users := whose(r.events); len(users) != 8 || !users[history.MakeUser(1, 7)] {
			t.Errorf("%s: users are %v", format, users)
		}
	}
}

// whose returns the users in the events.
func whose(events []history.Event) map[history.User]bool {
	users := map[history.User]bool{}
	for _, e := range events {
		users[e.User] = true
	}
	return users
}

func TestNothingRecordedButCounted(t *testing.T) {
	y := newToy()
	r := inside(t, y)
	r.begin(func(s *wire.Start) { withWorkload("acquire-release", `{"own_locks": true}`, 1)(s); s.Record = false })
	y.awaitGrant(t)
	if d := r.stop(); len(r.events) != 0 || d.Cycles == 0 {
		t.Errorf("%d events, %d cycles", len(r.events), d.Cycles)
	}
}

// startRegister runs the register and returns its supervisor's side and its address.
func startRegister(t *testing.T, guard string) (*rig, string) {
	t.Helper()
	toNode, stdin := io.Pipe()
	stdout, fromNode := io.Pipe()
	r := newRig(t, stdin, stdout)
	o := resource.Options{Listen: "127.0.0.1:0", In: toNode, Out: fromNode, Version: "test"}
	go func() { r.result <- register.Main(t.Context(), o) }()
	r.frame(wire.TypeHello)
	r.send(wire.Frame{Type: wire.TypeStart, Start: aStart(func(s *wire.Start) { s.Guard = guard; s.Index = -1 })})
	return r, r.frame(wire.TypeReady).Ready.Address
}

func protecting(address, guard string, more func(*wire.Start)) func(*wire.Start) {
	return func(s *wire.Start) {
		s.Resource = &wire.Resource{Use: "register", Address: address, Guard: guard}
		if more != nil {
			more(s)
		}
	}
}

func TestCounterCounts(t *testing.T) {
	reg, address := startRegister(t, resource.GuardFence)
	r := inside(t, newToy())
	r.begin(protecting(address, resource.GuardFence, withWorkload("counter", `{"locks": 2, "hold": 1000000}`, 6)))
	r.await(50, history.Write, history.Ok)
	d := r.stop()
	grants := checkExclusion(t, r.events)
	wrote := find(r.events, history.Write, history.Ok)
	if len(wrote) != grants || grants == 0 {
		t.Errorf("%d grants, %d acknowledged writes; errors %v", grants, len(wrote), d.Errors)
	}
	var sum, count int64
	for l := range 2 {
		a := reg.must(wire.OutcomeOK, wire.Command{Do: wire.DoFinal, Lock: l})
		sum, count = sum+a.Value, count+a.Count
	}
	if sum != int64(len(wrote)) || count != sum {
		t.Errorf("%d writes were acknowledged, %d applied, the counters say %d", len(wrote), count, sum)
	}
	reg.stop()
	if n := len(find(reg.events, history.EffectWrite, history.Ok)); n != len(wrote) {
		t.Errorf("the register's log has %d writes of %d", n, len(wrote))
	}
	final := find(reg.events, history.Final, history.Info)
	if len(final) != 2 || final[0].Value+final[1].Value != sum || final[0].Valid+final[1].Valid != count {
		t.Errorf("final reads are %+v", final)
	}
	for _, e := range find(reg.events, history.EffectWrite, history.Ok) {
		if a := r.events[e.Grant-1]; a.Kind != history.Acquire || a.User != e.User || a.Lock != e.Lock {
			t.Fatalf("effect %+v names grant %+v", e, a)
		}
	}
}

func TestOpenLoopReportsItsLag(t *testing.T) {
	// One of two users takes half of 2000 arrivals a second, and serves one in 20 ms.
	const gap, hold = int64(time.Millisecond), int64(20 * time.Millisecond)
	r := inside(t, newToy())
	r.begin(withWorkload("acquire-release", `{"rate": 2000, "hold": 20000000, "own_locks": true, "arrivals": "uniform"}`, 1))
	r.await(12, history.Acquire, history.Invoke)
	stopped := clock.Now()
	d := r.stop()
	asked := find(r.events, history.Acquire, history.Invoke)
	first, last := asked[0], asked[len(asked)-1]
	least, most := (stopped-first.Value)/gap, (clock.Now()-first.Value)/gap+1
	if n := int64(len(asked)) + d.Unstarted; n < least || n > most || int64(len(asked)) > (last.Time-first.Time)/hold+1 {
		t.Errorf("%d begun, %d unstarted; want %d to %d", len(asked), d.Unstarted, least, most)
	}
	behind, served := last.Time-last.Value, int64(len(asked)-1)
	if behind < served*(hold-gap) {
		t.Errorf("after %d others the last acquire began %v after it was meant to", served, time.Duration(behind))
	}
	// Waiting for the only user is not lag of the schedule. A stall is. The last acquire is late by both.
	if d.Lag <= 0 || d.Lag > behind-served*(hold-gap) {
		t.Errorf("the schedule's own lag is %v; the last acquire is behind by %v", time.Duration(d.Lag), time.Duration(behind))
	}
}

func TestStartsRefused(t *testing.T) {
	for want, change := range map[string]func(*wire.Start){
		`no backend "nine"`:         func(s *wire.Start) { s.Access = json.RawMessage(`{"backend":"nine"}`) },
		`no lock "best"`:            func(s *wire.Start) { s.Access = json.RawMessage(`{"backend":"toy","lock":"best"}`) },
		`no workload "rest"`:        withWorkload("rest", "", 1),
		`workload has 0 users`:      withWorkload("counter", "", 0),
		`unknown field "speed"`:     withWorkload("acquire-release", `{"speed": 5}`, 1),
		`uses 4 locks, the run has`: withWorkload("acquire-release", `{"own_locks": true}`, 2),
		`needs a resource`:          withWorkload("counter", "", 1),
		`no resource "pond"`:        func(s *wire.Start) { s.Resource = &wire.Resource{Use: "pond"} },
		`format is "xml"`:           func(s *wire.Start) { s.Format = "xml" },
		`check is "twice"`:          func(s *wire.Start) { s.Check = "twice" },
		`connection refused`:        protecting("127.0.0.1:1", "none", nil),
	} {
		r := inside(t, newToy())
		r.frame(wire.TypeHello)
		r.send(wire.Frame{Type: wire.TypeStart, Start: aStart(change)})
		if got := r.frame(wire.TypeFailed).Failed.Error; !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := <-r.result; err == nil {
			t.Errorf("%s: the client ended well", want)
		}
	}
	y := newToy()
	y.silent = true
	r := inside(t, y)
	r.frame(wire.TypeHello)
	r.send(wire.Frame{Type: wire.TypeStart, Start: aStart(func(s *wire.Start) { s.Check = checkSignal })})
	if got := r.frame(wire.TypeFailed).Failed.Error; !strings.Contains(got, "reports no loss") {
		t.Errorf("got %q", got)
	}
	<-r.result
}

// A user waits for the time of the go.
func TestGoIsNotBeforeItsTime(t *testing.T) {
	y := newToy()
	r := inside(t, y)
	r.frame(wire.TypeHello)
	r.send(wire.Frame{Type: wire.TypeStart, Start: aStart(withWorkload("acquire-release", `{}`, 2))})
	r.frame(wire.TypeReady)
	at := clock.Now() + int64(100*time.Millisecond)
	r.send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: at}})
	y.awaitGrant(t)
	r.stop()
	if asked := find(r.events, history.Acquire, history.Invoke); len(asked) == 0 || asked[0].Time < at {
		t.Errorf("the go is at %d; asked was %+v", at, asked)
	}
}

func TestMoreLocksThanAnEventCanNameAreRefused(t *testing.T) {
	s := &session{}
	if err := s.makeWorkload(&wire.Start{Locks: make([]string, maxLocks)}); err != nil {
		t.Error(err)
	}
	if err := s.makeWorkload(&wire.Start{Locks: make([]string, maxLocks+1)}); err == nil {
		t.Error("65537 locks were taken")
	}
}
