package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	killing "github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// entry is an injection that a schedule makes early and heals before the end.
const entry = "{use: trouble, on: client-1, at: 10ms, for: 30ms}"

var errTest = errors.New("a machine that says no")

// TestReceiptsDecideTheStrengthOfAZero goes through the results of a fault and of its heal.
func TestReceiptsDecideTheStrengthOfAZero(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		fault   *fakeFault
		want    results.Verdict
		reason  string
		receipt history.ReceiptStatus
		healed  history.ReceiptStatus
	}{
		{"it bites and is healed", &fakeFault{}, results.Pass, "", history.Installed, history.Installed},
		{
			"it does not bite", &fakeFault{inject: injects(history.NotInstalled, nil)},
			results.Unknown, "trouble on client-1 did not bite: its receipt is not-installed", history.NotInstalled, history.Installed,
		},
		{
			"nobody knows whether it bit", &fakeFault{inject: injects(history.Indeterminate, nil)},
			results.Unknown, "trouble on client-1 did not bite: its receipt is indeterminate", history.Indeterminate, history.Installed,
		},
		{
			"an error beside a good receipt", &fakeFault{inject: injects(history.Installed, errTest)},
			results.Unknown, "a machine that says no", history.NotInstalled, history.Installed,
		},
		{
			"an error beside no receipt", &fakeFault{inject: injects("", errTest)},
			results.Unknown, "a machine that says no", history.NotInstalled, history.Installed,
		},
		{
			"an error beside a receipt that does not know", &fakeFault{inject: injects(history.Indeterminate, errTest)},
			results.Unknown, "a machine that says no", history.Indeterminate, history.Installed,
		},
		{
			"the heal fails", &fakeFault{heal: answers(history.Installed, errTest)},
			results.Unknown, "heal of trouble on client-1: a machine that says no", history.Installed, history.NotInstalled,
		},
		{
			"the fault is still active after the heal", &fakeFault{heal: answers(history.NotInstalled, nil)},
			results.Unknown, "the heal of trouble on client-1 is not confirmed", history.Installed, history.NotInstalled,
		},
		{
			"nobody knows whether it still stands", &fakeFault{heal: answers(history.Indeterminate, nil)},
			results.Unknown, "the heal of trouble on client-1 is not confirmed", history.Installed, history.Indeterminate,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": c.fault}}
			got := s.run(t.Context(), scheduled(entry))
			s.wantVerdict(got, c.want, c.reason)
			if len(got.faults) != 1 {
				t.Fatalf("%d records of faults", len(got.faults))
			}
			f := got.faults[0]
			if f.Receipt.Status != c.receipt || f.Healed == nil || f.Healed.Status != c.healed {
				t.Errorf("receipt %+v, healed %+v; want %s, %s", f.Receipt, f.Healed, c.receipt, c.healed)
			}
			if c.fault.healed() != 1 {
				t.Errorf("it was healed %d times", c.fault.healed())
			}
			if bit := f.Bit != 0; bit != (c.receipt == history.Installed) {
				t.Errorf("it bit at %d with the receipt %s", f.Bit, f.Receipt.Status)
			}
			if f.Receipt.Time == 0 || f.Undo < f.Receipt.Time || f.End <= f.Undo {
				t.Errorf("receipt at %d, heal from %d to %d", f.Receipt.Time, f.Undo, f.End)
			}
		})
	}
}

// TestAMomentIsHealedWhenItIsDone: a fault that does not last is over before the next step is taken.
func TestAMomentIsHealedWhenItIsDone(t *testing.T) {
	t.Parallel()
	f := &fakeFault{moment: true}
	before := -1
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}, scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
		if c.Do == wire.DoRelease {
			before = f.healed()
		}
		a.carryOut(c)
		return &wire.Result{Outcome: wire.OutcomeOK}
	}}}}
	got := s.run(t.Context(), directed("{do: acquire, user: A}", "{inject: trouble, on: A}", "{do: release, user: A}"))
	s.wantVerdict(got, results.Pass)
	if before != 1 || f.healed() != 1 || got.faults[0].End == 0 {
		t.Errorf("healed %d times before the next step, %d in all: %+v", before, f.healed(), got.faults[0])
	}
}

// TestTheLastFaultIsHealedFirst, whether the run comes to its end or is interrupted.
func TestTheLastFaultIsHealedFirst(t *testing.T) {
	t.Parallel()
	for _, interrupted := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var order []string
		named := func(name string) *fakeFault {
			f := &fakeFault{heal: func() (history.Receipt, error) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
				return history.Receipt{Status: history.Installed}, nil
			}}
			f.inject = func(chaos.Scope) (history.Receipt, error) {
				if interrupted && name == "third" {
					cancel()
				}
				return history.Receipt{Status: history.Installed}, nil
			}
			return f
		}
		s := &testbed{t: t, faults: map[string]*fakeFault{"first": named("first"), "second": named("second"), "third": named("third")}}
		got := s.run(ctx, directed("{do: acquire, user: A}", "{inject: first, on: A}", "{inject: second, on: A}", "{inject: third, on: A}"))
		if want := []string{"third", "second", "first"}; !slices.Equal(order, want) {
			t.Errorf("healed in the order %q, want %q", order, want)
		}
		for _, f := range got.faults {
			if f.Healed == nil || f.Healed.Status != history.Installed || f.End == 0 {
				t.Errorf("%s: healed %+v at %d", f.Name, f.Healed, f.End)
			}
		}
		if got.env.Interrupted != interrupted {
			t.Errorf("interrupted is %t", got.env.Interrupted)
		}
	}
}

// TestAHealThatFailsStopsNoOther: the other faults are healed all the same.
func TestAHealThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	below, fails := &fakeFault{}, &fakeFault{heal: answers(history.Installed, errTest)}
	s := &testbed{t: t, faults: map[string]*fakeFault{"below": below, "fails": fails}}
	got := s.run(t.Context(), directed("{do: acquire, user: A}", "{inject: below, on: A}", "{inject: fails, on: A}"))
	s.wantVerdict(got, results.Unknown, "heal of fails on client-1: a machine that says no")
	if below.healed() != 1 || got.faults[0].Healed == nil || got.faults[0].Healed.Status != history.Installed {
		t.Errorf("the one below was healed %d times: %+v", below.healed(), got.faults[0].Healed)
	}
}

// TestATargetThatIsNotThere: nothing is done, and a zero proves nothing.
func TestATargetThatIsNotThere(t *testing.T) {
	t.Parallel()
	f := &fakeFault{}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}, ask: func(_, fact string) (string, error) {
		if fact == chaos.FactRole {
			return "follower", nil
		}
		return "true", nil
	}}
	got := s.run(t.Context(), scheduled("{use: trouble, on: leader, at: 10ms, for: 30ms}"))
	s.wantVerdict(got, results.Unknown, "trouble on leader did not bite: its receipt is not-installed (target leader: none")
	if f.healed() != 0 || got.faults[0].Bit != 0 {
		t.Errorf("healed %d times what was not injected: %+v", f.healed(), got.faults[0])
	}
}

// TestOneInjectionThatBitesIsEnough, unless the scenario demands all. The report says how many bit.
func TestOneInjectionThatBitesIsEnough(t *testing.T) {
	t.Parallel()
	again := "{use: trouble, on: client-1, at: 10ms, for: 10ms, every: 90ms}"
	for expect, want := range map[string]results.Verdict{"": results.Pass, ", bit: all": results.Unknown} {
		n := 0
		f := &fakeFault{}
		f.inject = func(chaos.Scope) (history.Receipt, error) {
			if n++; n == 2 {
				return history.Receipt{Status: history.Installed}, nil
			}
			return history.Receipt{Status: history.NotInstalled}, nil
		}
		s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}}
		got := s.run(t.Context(), strings.Replace(scheduled(again), `">=1"}`, `">=1"`+expect+"}", 1))
		s.wantVerdict(got, want)
		if !slices.ContainsFunc(got.report.Strength, func(s string) bool { return strings.Contains(s, "bit 1 of ") }) {
			t.Errorf("the strength of the zeros tells nothing of the injections that did not bite: %q", got.report.Strength)
		}
	}
}

// TestAFaultThatIsNeverInjected: the load ended before its time had come, or its record is gone.
func TestAFaultThatIsNeverInjected(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}, scripts: map[string]script{"client-1": {begins: func(a *fakeNode) {
		a.grant()
		a.release()
		a.die()
	}}}}
	for _, serial := range []bool{false, true} {
		s.tune = func(r *run) { r.plan.Promise.Serial = serial }
		got := s.run(t.Context(), strings.Replace(scheduled("{use: trouble, on: client-1, at: 4s}"), "for: 400ms", "for: 5s", 1))
		s.wantVerdict(got, results.Unknown, "client-1 ended without a fault", "trouble was never injected")
	}

	s = &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}, "other": {}}}
	got := s.run(t.Context(), scheduled(entry, "{use: other, on: client-1, at: 20ms, for: 30ms}"))
	s.wantVerdict(got, results.Pass)
	path := filepath.Join(got.dir, results.FileFaults)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(b), "\n"), func(l string) bool { return strings.Contains(l, `"name":"other"`) })
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.wantVerdict(s.judge(got), results.Unknown, "other was never injected (entry 2 of chaos)")
}

// holding is a client that takes the lock again and again, and holds it at every stop. The field slips is how often
// it begins to release before it is stopped.
type holding struct {
	mu      sync.Mutex
	slips   int
	still   bool
	stops   int
	resumed int
}

func (h *holding) script() script {
	return script{
		begins: func(a *fakeNode) {
			for a.pause(2 * time.Millisecond) {
				h.mu.Lock()
				if !h.still {
					a.release()
					a.grant()
				}
				h.mu.Unlock()
			}
			a.release()
		},
		signalled: func(a *fakeNode, name string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			switch name {
			case "STOP":
				h.stops++
				if h.slips > 0 {
					h.slips--
					a.release()
				} else {
					a.grant() // it may be between two grants
				}
				h.still = true
			case "CONT":
				h.still = false
				h.resumed++
			}
		},
	}
}

// held is a schedule that aims at a holder.
var held = strings.Replace(scheduled("{use: trouble, on: holder, at: 10ms, for: 30ms}"), "for: 400ms", "for: 1500ms", 1)

// TestTheHolderOfALockThatIsNamed, and of a lock that does not exist.
func TestTheHolderOfALockThatIsNamed(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]results.Verdict{"lock-0": results.Pass, "lock-9": results.Unknown} {
		s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}, scripts: map[string]script{"client-1": (&holding{}).script()}}
		got := s.run(t.Context(), strings.Replace(held, "on: holder", "on: holder("+lock+")", 1))
		reason := ""
		if want == results.Unknown {
			reason = `there is no lock "lock-9"`
		}
		s.wantVerdict(got, want, reason)
	}
}

// TestAHolderThatSlipsAwayIsAMiss: it continues, is counted, and the next grant is tried.
func TestAHolderThatSlipsAwayIsAMiss(t *testing.T) {
	t.Parallel()
	h, f := &holding{slips: 3}, &fakeFault{kind: chaos.Kind{Stops: true}}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}, scripts: map[string]script{"client-1": h.script()}}
	got := s.run(t.Context(), held)
	s.wantVerdict(got, results.Pass)
	x := got.faults[0]
	if x.Misses < 3 || x.Receipt.Status != history.Installed || x.User == nil || x.Grant == 0 || x.Bit == 0 {
		t.Errorf("%d misses, %+v", x.Misses, x)
	}
	if x.Receipt.Time-x.Bit < int64(live.Silence) {
		t.Errorf("stopped at %d, injected at %d: its stream was not read until it was silent", x.Bit, x.Receipt.Time)
	}
	if h.stops != x.Misses+1 || h.resumed != h.stops {
		t.Errorf("%d misses, %d stops, %d times continued", x.Misses, h.stops, h.resumed)
	}
	if len(got.report.Faults) != 1 || got.report.Faults[0].Misses != x.Misses {
		t.Errorf("the report tells of %+v", got.report.Faults)
	}
}

// TestAHolderThatHasHeldForLong is waited for: a holder that releases sooner is skipped, and is not a miss.
func TestAHolderThatHasHeldForLong(t *testing.T) {
	t.Parallel()
	var long uint32
	client := script{begins: func(a *fakeNode) {
		for range 5 {
			a.grant()
			a.pause(10 * time.Millisecond)
			a.release()
		}
		a.grant()
		long = a.held
		for a.pause(10 * time.Millisecond) {
		}
		a.release()
	}}
	f := &fakeFault{kind: chaos.Kind{Stops: true}}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}, scripts: map[string]script{"client-1": client}}
	got := s.run(t.Context(), strings.Replace(held, "at: 10ms", "at: 0s, held: 300ms", 1))
	x := got.faults[0]
	if x.Receipt.Status != history.Installed || x.Grant != long || x.Misses != 0 {
		t.Errorf("%+v: want a hit on grant %d, and no miss", x, long)
	}
}

// TestTwentyMissesAreEnough: a miss is not a hit, and the injection gives up.
func TestTwentyMissesAreEnough(t *testing.T) {
	t.Parallel()
	h, f := &holding{slips: 1000}, &fakeFault{kind: chaos.Kind{Stops: true}}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}, scripts: map[string]script{"client-1": h.script()}}
	text := directed("{await: elapsed, for: 1ms}", "{inject: trouble, on: holder, within: 60s}")
	got := s.run(t.Context(), strings.Replace(text, "workload: {", "workload: {use: acquire-release, clients: 1, timeout: 100ms, ", 1))
	s.wantVerdict(got, results.Unknown, "20 successive holders had begun to release before they were stopped")
	x := got.faults[0]
	if x.Misses != 20 || x.Receipt.Status != history.NotInstalled || x.Bit != 0 {
		t.Errorf("%d misses, %+v", x.Misses, x)
	}
	if h.stops != 20 || h.resumed != 20 || f.healed() != 0 {
		t.Errorf("%d stops, %d times continued, %d heals", h.stops, h.resumed, f.healed())
	}
}

// TestTheHistoryHasTheLastWord: a release that began before the stop, and arrives after the heal, voids the receipt.
func TestTheHistoryHasTheLastWord(t *testing.T) {
	t.Parallel()
	h := &holding{}
	p := h.script()
	inner := p.signalled
	var before int64
	p.signalled = func(a *fakeNode, name string) {
		inner(a, name)
		switch name {
		case "STOP":
			before = clock.Now()
			time.Sleep(time.Microsecond)
		case "CONT":
			a.release(before)
		}
	}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {kind: chaos.Kind{Stops: true}}}, scripts: map[string]script{"client-1": p}}
	got := s.run(t.Context(), held)
	s.wantVerdict(got, results.Unknown, "but the history contradicts: a release of that grant")
	if got.faults[0].Receipt.Status != history.Installed || got.report.Faults[0].Receipt.Status != history.NotInstalled {
		t.Errorf("recorded %s, judged %s", got.faults[0].Receipt.Status, got.report.Faults[0].Receipt.Status)
	}
}

// TestAHolderThatCannotBeStopped: its actions are unknown, and it continues.
func TestAHolderThatCannotBeStopped(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}}
	s.signalFails = func(_, name string) error {
		if name == "STOP" {
			return errTest
		}
		return nil
	}
	got := s.run(t.Context(), held)
	s.wantVerdict(got, results.Unknown, "its receipt is indeterminate (signal STOP to client-1: a machine that says no)")
	if s.stopped["client-1"] || got.faults[0].Bit != 0 {
		t.Errorf("stopped %t, %+v", s.stopped["client-1"], got.faults[0])
	}
}

// TestAHolderThatIsNotContinued makes the run unknown: no fault explains why it stands still after it was stopped to
// aim.
func TestAHolderThatIsNotContinued(t *testing.T) {
	t.Parallel()
	h := &holding{slips: 1}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}, scripts: map[string]script{"client-1": h.script()}}
	s.signalFails = func(_, name string) error {
		if name == "CONT" {
			return errTest
		}
		return nil
	}
	got := s.run(t.Context(), held)
	s.wantVerdict(got, results.Unknown, "signal CONT to client-1: a machine that says no")
}

// TestNoHolderWasSeen: the load ends before any grant comes.
func TestNoHolderWasSeen(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}, scripts: map[string]script{"client-1": {begins: func(a *fakeNode) {
		a.grant() // before the injection
		a.pause(time.Hour)
		a.release()
	}}}}
	got := s.run(t.Context(), scheduled("{use: trouble, on: holder, at: 60ms}"))
	s.wantVerdict(got, results.Unknown, "no holder appeared")
}

// TestAKilledClient is dead in the history after it was last heard, and its missing goodbye is not held against it.
func TestAKilledClient(t *testing.T) {
	t.Parallel()
	h := &holding{}
	kill := &fakeFault{moment: true, kind: chaos.Kind{Kills: true}}
	idle := script{begins: func(a *fakeNode) { a.pause(time.Hour) }}
	s := &testbed{t: t, faults: map[string]*fakeFault{"kill": kill}, scripts: map[string]script{"client-1": h.script(), "client-2": idle}}
	kill.inject = func(sc chaos.Scope) (history.Receipt, error) {
		err := killed(t, sc)
		return history.Receipt{Status: history.Installed}, err
	}
	text := strings.Replace(held, "use: trouble, on: holder, at: 10ms, for: 30ms", "use: kill, on: holder, at: 10ms", 1)
	got := s.run(t.Context(), strings.Replace(text, "clients: 1", "clients: 2", 1))
	s.wantVerdict(got, results.Pass)
	if !got.env.Clients[0].Dead || got.env.Clients[1].Dead {
		t.Errorf("the clients' last words: %+v", got.env.Clients)
	}
	dead := got.events(t, history.Dead)
	f := got.faults[0]
	if len(dead) != 1 || dead[0].Grant != f.Grant || dead[0].User != *f.User || dead[0].Value < f.Start || dead[0].Value > f.Bit {
		t.Errorf("killed by %+v; the history tells of %+v", f, dead)
	}
}

// TestAKilledClientLivedUntilTheSignal, although it had been silent for longer; it was dead when it was seen gone.
func TestAKilledClientLivedUntilTheSignal(t *testing.T) {
	t.Parallel()
	kill := &fakeFault{moment: true, kind: chaos.Kind{Kills: true}}
	silent := script{begins: func(a *fakeNode) { a.grant(); a.pause(time.Hour) }}
	s := &testbed{t: t, faults: map[string]*fakeFault{"kill": kill}, scripts: map[string]script{"client-1": silent}}
	kill.inject = func(sc chaos.Scope) (history.Receipt, error) {
		r := history.Receipt{Status: history.Installed, Time: clock.Now()} // before its stream ends
		err := killed(t, sc)
		return r, err
	}
	got := s.run(t.Context(), scheduled("{use: kill, on: client-1, at: 200ms}"))
	dead := got.events(t, history.Dead)
	if f := got.faults[0]; len(dead) != 1 || dead[0].Value < f.Start {
		t.Errorf("killed by %+v; the history tells of %+v", f, dead)
	} else if dead[0].Time != max(f.Receipt.Time, dead[0].Value) {
		t.Errorf("its death is told at %d, and its process was seen gone at %d", dead[0].Time, f.Receipt.Time)
	}
}

// TestADeathThatNoFaultIsToBlameFor: a kill that was not seen to act excuses no death.
func TestADeathThatNoFaultIsToBlameFor(t *testing.T) {
	t.Parallel()
	kill := &fakeFault{moment: true, kind: chaos.Kind{Kills: true}}
	s := &testbed{t: t, faults: map[string]*fakeFault{"kill": kill}}
	kill.inject = func(chaos.Scope) (history.Receipt, error) {
		s.fake("client-1").die()
		return history.Receipt{Status: history.NotInstalled}, nil
	}
	got := s.run(t.Context(), strings.Replace(scheduled("{use: kill, on: client-1, at: 30ms}"), "for: 400ms", "for: 5s", 1))
	s.wantVerdict(got, results.Unknown, "client-1 ended without a fault", "client-1 ended without its final message")
}

// TestAnInjectionUnderWayIsWaitedFor: whatever ends the load, an injection that has begun is healed before the
// service is checked for recovery.
func TestAnInjectionUnderWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := &fakeFault{inject: func(chaos.Scope) (history.Receipt, error) {
		time.Sleep(700 * time.Millisecond) // the load is over by then
		return history.Receipt{Status: history.Installed}, nil
	}}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}}
	got := s.run(t.Context(), scheduled("{use: trouble, on: client-1, at: 10ms}"))
	s.wantVerdict(got, results.Pass)
	if x := got.faults[0]; x.Healed == nil || x.End > got.env.End {
		t.Errorf("the run ended at %d; healed %+v at %d", got.env.End, x.Healed, x.End)
	}
}

// TestAnInjectionIsHealedWhenItsTimeIsOver, before the next one has its turn.
func TestAnInjectionIsHealedWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	first, second := &fakeFault{}, &fakeFault{}
	before := -1
	second.inject = func(chaos.Scope) (history.Receipt, error) {
		before = first.healed()
		return history.Receipt{Status: history.Installed}, nil
	}
	s := &testbed{t: t, faults: map[string]*fakeFault{"first": first, "second": second}, tune: func(r *run) { r.plan.Promise.Serial = true }}
	got := s.run(t.Context(), scheduled("{use: first, on: client-1, at: 10ms, for: 30ms}", "{use: second, on: client-1, at: 20ms, for: 30ms}"))
	s.wantVerdict(got, results.Pass)
	if before != 1 {
		t.Errorf("when the second was injected, the first had been healed %d times", before)
	}
}

// TestAnInjectionStandsForItsTime, counted from when it bit, however long the proof took, or from when it was tried.
func TestAnInjectionStandsForItsTime(t *testing.T) {
	t.Parallel()
	for _, status := range []history.ReceiptStatus{history.Installed, history.NotInstalled} {
		f := &fakeFault{inject: func(chaos.Scope) (history.Receipt, error) {
			r := history.Receipt{Status: status, Time: clock.Now()}
			time.Sleep(5 * time.Millisecond)
			return r, nil
		}}
		s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}}
		x := s.run(t.Context(), scheduled(entry)).faults[0]
		want := 30 * time.Millisecond
		if status != history.Installed {
			want += 5 * time.Millisecond
		}
		if stood := time.Duration(x.Undo - x.Receipt.Time); stood != want {
			t.Errorf("%s: it was healed after %v, want %v", status, stood, want)
		}
	}
}

// TestProgressShowsActiveFaults: the number of injections, how many are not healed, and the time since the load began.
func TestProgressShowsActiveFaults(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	said, elapsed := map[string][2]int{}, map[string]time.Duration{}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}, progress: func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		said[p.Text] = [2]int{p.Faults, p.Standing}
		elapsed[p.Phase+p.Text] = p.Elapsed
	}}
	s.run(t.Context(), scheduled(entry, "{use: trouble, on: server-1, at: 20ms}"))
	if up, injected := elapsed[results.TimeUp], elapsed[results.TimeLoad+"trouble on client-1: installed"]; up != 0 || injected != 10*time.Millisecond {
		t.Errorf("the load went on for %v at the start, and for %v at the first injection", up, injected)
	}
	for text, want := range map[string][2]int{
		"trouble on client-1: installed": {1, 1}, "trouble on server-1: installed": {2, 2}, "trouble on client-1: healed": {2, 1}, "trouble on server-1: healed": {2, 0},
	} {
		if got, ok := said[text]; !ok || got != want {
			t.Errorf("%q: %d injections, %d of them standing; want %v", text, got[0], got[1], want)
		}
	}
}

// killed kills the first target.
func killed(t *testing.T, sc chaos.Scope) error {
	t.Helper()
	killer, ok := chaos.As[killing.Killer](sc.On[0])
	if !ok {
		return fmt.Errorf("%s cannot be killed", sc.On[0].Name())
	}
	_, err := killer.Kill(t.Context())
	return err
}

// TestAKilledServerMayBeGone until it is healed: then it must run again.
func TestAKilledServerMayBeGone(t *testing.T) {
	t.Parallel()
	for lasts, want := range map[string]results.Verdict{"": results.Pass, ", for: 50ms": results.Unknown} {
		kill := &fakeFault{kind: chaos.Kind{Kills: true}} // and its heal starts nothing
		kill.inject = func(sc chaos.Scope) (history.Receipt, error) {
			err := killed(t, sc)
			return history.Receipt{Status: history.Installed}, err
		}
		s := &testbed{t: t, faults: map[string]*fakeFault{"kill": kill}}
		got := s.run(t.Context(), scheduled("{use: kill, on: server-1, at: 10ms"+lasts+"}"))
		reason := ""
		if want == results.Unknown {
			reason = "server-1 ended without a fault"
		}
		s.wantVerdict(got, want, reason)
	}
}

// TestAKillIsTheDeathOfItsTargetsAlone.
func TestAKillIsTheDeathOfItsTargetsAlone(t *testing.T) {
	t.Parallel()
	kill := plan.Injection{Kind: chaos.Kind{Name: "kill", Kills: true}}
	pause := plan.Injection{Kind: chaos.Kind{Name: "pause"}}
	l := &rundir.Faults{}
	add := func(inj plan.Injection, start int64, target string, status history.ReceiptStatus) {
		f := history.Fault{Start: start, Targets: []string{target}, Receipt: history.Receipt{Status: status}}
		*l.Add(plan.Due{Inj: inj}, 0).Fault = f
	}
	add(kill, 10, "client-1", history.Installed)
	add(kill, 20, "client-1", history.NotMade)
	add(pause, 30, "client-2", history.Installed)
	if one, two := l.KilledAt("client-1"), l.KilledAt("client-2"); one != 10 || two != 0 {
		t.Errorf("client-1 was killed at %d, client-2 at %d; want 10 and never", one, two)
	}
}

// TestAClientThatEndsInOrderIsNotDead, even with a grant held.
func TestAClientThatEndsInOrderIsNotDead(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, scripts: map[string]script{"client-1": {begins: func(a *fakeNode) { a.grant() }}}}
	got := s.run(t.Context(), scheduled())
	s.wantVerdict(got, results.Pass)
	if dead := got.events(t, history.Dead); len(dead) != 0 || got.env.Clients[0].Dead {
		t.Errorf("dead %t: %+v", got.env.Clients[0].Dead, dead)
	}
}

// TestAClientThatIsToDieAtAPoint is not blamed for it.
func TestAClientThatIsToDieAtAPoint(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
		if c.Do == wire.DoAcquire {
			a.grant()
			_ = a.conn.Send(wire.Frame{Type: wire.TypePoint, Point: &wire.Point{Point: "before-free"}})
			a.die()
			return nil
		}
		return &wire.Result{Outcome: wire.OutcomeOK}
	}}}}
	got := s.run(t.Context(), directed(
		"{do: arm, user: A, point: before-free, action: die}", "{do: acquire, user: A, async: true}",
		"{await: point, user: A, point: before-free}", "{await: elapsed, for: 250ms}", // two checks of which processes run
	))
	s.wantVerdict(got, results.Pass)
	if dead := got.events(t, history.Dead); len(dead) != 1 {
		t.Errorf("the history tells of %+v", dead)
	}
}

// TestASessionThatEnds ends the entitlement of a grant without end, from the last time that the session was seen.
func TestASessionThatEnds(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		var asked, gone atomic.Int64
		s := &testbed{t: t, sessions: func() []topology.Session {
			if asked.Add(1); gone.Load() != 0 {
				return nil
			}
			return []topology.Session{{User: history.MakeUser(0, 0), ID: "a", Stands: true}}
		}}
		again := func(a *fakeNode) { // until the service was asked twice more
			for n := asked.Load() + 2; asked.Load() < n && a.pause(time.Millisecond); {
			}
		}
		s.scripts = map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
			switch c.Do {
			case wire.DoAcquire:
				op := a.emit(history.Event{Kind: history.Acquire, Phase: history.Invoke})
				a.emit(history.Event{Kind: history.Acquire, Phase: history.Ok, Op: op.Op, Grant: op.Op, Token: 1, Value: op.Time, Valid: history.ValidEndless})
				a.held = op.Op
				again(a)
			case wire.DoRelease:
				if ends {
					gone.Store(1)
					again(a)
				}
				a.release()
				again(a)
			}
			return &wire.Result{Outcome: wire.OutcomeOK}
		}}}
		got := s.run(t.Context(), directed("{do: acquire, user: A}", "{do: release, user: A}"))
		s.wantVerdict(got, results.Pass)
		if over := got.events(t, history.Ended); (len(over) == 1) != ends || ends && over[0].Time > got.events(t, history.Release)[0].Time {
			t.Errorf("the session ends: %t; the history tells of %+v", ends, over)
		}
	}
}

// TestTheLocksOfAKilledServerAreRecorded if the service spreads them, and only for a kill.
func TestTheLocksOfAKilledServerAreRecorded(t *testing.T) {
	t.Parallel()
	for _, kills := range []bool{true, false} {
		f := &fakeFault{moment: true, kind: chaos.Kind{Kills: kills}}
		s := &testbed{t: t, servers: 2, faults: map[string]*fakeFault{"trouble": f}, leads: func(node string, locks []string) ([]string, error) {
			if node != "server-2" {
				return nil, errTest
			}
			return locks[:1], nil
		}}
		got := s.run(t.Context(), scheduled("{use: trouble, on: server-2, at: 10ms}"))
		x := got.faults[0]
		if (x.Shard != nil) != kills || kills && (x.Shard.Unknown != "" || !slices.Equal(x.Shard.Locks, []string{"lock-0"})) {
			t.Errorf("it kills: %t, and its shard is %+v", kills, x.Shard)
		}
	}
}
