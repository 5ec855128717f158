package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// answering returns a client that gives these answers to the orders of steps.
func answering(how map[string]*wire.Result) script {
	return script{commanded: func(a *fakeNode, c wire.Command) *wire.Result {
		if res, ok := how[c.Do]; ok {
			return res
		}
		a.carryOut(c)
		return &wire.Result{Outcome: wire.OutcomeOK}
	}}
}

// TestAStepThatIsNotMetMakesTheRunUnknown goes through the possible results of steps.
func TestAStepThatIsNotMetMakesTheRunUnknown(t *testing.T) {
	t.Parallel()
	const acquire = "{do: acquire, user: A}"
	info := &wire.Result{Outcome: wire.OutcomeInfo, Error: "nobody knows"}
	refused := &wire.Result{Outcome: wire.OutcomeFail, Error: "it is not held"}
	for _, c := range []struct {
		name   string
		steps  []string
		bed    *testbed
		want   results.Verdict
		reason string
	}{
		{"all are met", []string{
			acquire, "{await: event, event: acquire ok, user: A}", "{await: elapsed, for: 5ms}", "{await: fact, fact: serves, node: server-1, is: \"true\"}",
			"{inject: trouble, on: A, as: it}", "{heal: it}", "{do: release, user: A}",
		}, &testbed{}, results.Pass, ""},
		{
			"an order without an answer",
			[]string{"{do: acquire, user: A, within: 20ms}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"acquire": nil})}},
			results.Unknown, "line 8: A acquire: client-1: acquire: no result within 30ms",
		},
		{
			"an answer that comes late",
			[]string{"{do: acquire, user: A, within: 20ms}"},
			&testbed{scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, _ wire.Command) *wire.Result {
				a.pause(time.Second)
				return &wire.Result{Outcome: wire.OutcomeOK}
			}}}},
			results.Unknown, "line 8: A acquire: client-1: acquire: no result within 30ms",
		},
		{
			"an answer when the time is just over", // the client has the same deadline, and says more
			[]string{"{do: acquire, user: A, within: 20ms}"},
			&testbed{scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, _ wire.Command) *wire.Result {
				a.pause(20 * time.Millisecond)
				return &wire.Result{Outcome: wire.OutcomeInfo, Error: "too late"}
			}}}},
			results.Unknown, "line 8: A acquire: its outcome is info (too late), the step wants ok",
		},
		{
			"a grant that nobody ordered",
			[]string{acquire, "{await: elapsed, for: 5s}"},
			&testbed{scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
				a.carryOut(c)
				a.release()
				a.grant()
				return &wire.Result{Outcome: wire.OutcomeOK}
			}}}},
			results.Unknown, "client-1: control stream breaks the protocol: event 5 (acquire invoke of client-1/0): there was no such order",
		},
		{
			"another outcome",
			[]string{acquire, "{do: release, user: A}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": info})}},
			results.Unknown, "line 9: A release: its outcome is info (nobody knows), the step wants ok",
		},
		{
			"what must be done is refused",
			[]string{acquire, "{do: release, user: A, outcome: ok}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": refused})}},
			results.Fail, "line 9: A release: its outcome is fail (it is not held), the step wants ok",
		},
		{
			"what must be done is refused, and nobody waited for it",
			[]string{acquire, "{do: release, user: A, outcome: ok, async: true}", "{await: elapsed, for: 300ms}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": refused})}},
			results.Fail, "line 9: A release: its outcome is fail (it is not held), the step wants ok",
		},
		{
			"what must be done by default is refused",
			[]string{acquire, "{do: release, user: A}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": refused})}},
			results.Unknown, "line 9: A release: its outcome is fail (it is not held), the step wants ok",
		},
		{
			"nobody knows whether what must be done was",
			[]string{acquire, "{do: release, user: A, outcome: ok}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": info})}},
			results.Unknown, "line 9: A release: its outcome is info (nobody knows), the step wants ok",
		},
		{
			"what must be done is refused while something is broken",
			[]string{acquire, "{inject: trouble, on: A, as: it}", "{do: release, user: A, outcome: ok}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": refused})}},
			results.Unknown, "line 10: A release: its outcome is fail (it is not held), the step wants ok",
		},
		{
			"what must be done is not answered in time",
			[]string{"{do: acquire, user: A, outcome: ok, within: 20ms}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"acquire": nil})}},
			results.Fail, "line 8: A acquire: client-1: acquire: no result within 30ms",
		},
		{
			"what must not be done is refused",
			[]string{acquire, "{do: release, user: A, outcome: not-ok}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": info})}}, results.Pass, "",
		},
		{
			"what must not be done is done",
			[]string{acquire, "{do: release, user: A, outcome: not-ok}"},
			&testbed{}, results.Fail, "step 2, release of A, was done, but must not be",
		},
		{
			"what must not be done is done, and nobody waited for it",
			[]string{acquire, "{do: release, user: A, outcome: not-ok, async: true}", "{await: elapsed, for: 300ms}"},
			&testbed{}, results.Fail, "step 2, release of A, was done, but must not be",
		},
		{
			"an outcome that was not asked for",
			[]string{acquire, "{do: release, user: A, outcome: fail}"},
			&testbed{},
			results.Unknown, "line 9: A release: its outcome is ok (), the step wants fail",
		},
		{
			"the outcome that was asked for",
			[]string{acquire, "{do: release, user: A, outcome: info}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": info})}}, results.Pass, "",
		},
		{
			"any outcome",
			[]string{acquire, "{do: release, user: A, outcome: any}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"release": info})}}, results.Pass, "",
		},
		{
			"an event that does not come",
			[]string{acquire, "{await: event, event: lost, user: A, within: 20ms}"},
			&testbed{},
			results.Unknown, "line 9: await event lost A: not within 20ms",
		},
		{
			"an event of another lock",
			[]string{acquire, "{do: acquire, user: A, lock: lock-1}", "{await: event, event: release ok, user: A, lock: lock-1, within: 20ms}"},
			&testbed{}, results.Unknown, "line 10: await event release ok A: not within 20ms",
		},
		{
			"an event of before the order",
			[]string{acquire, acquire, "{await: event, event: acquire ok, user: A, within: 20ms}"},
			&testbed{scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
				if c.ID == 1 { // the second acquire leaves no trace
					a.carryOut(c)
				}
				return &wire.Result{Outcome: wire.OutcomeOK}
			}}}},
			results.Unknown, "line 10: await event acquire ok A: not within 20ms",
		},
		{
			"a fact that is not so",
			[]string{acquire, "{await: fact, fact: role, node: server-1, is: leader, within: 30ms}"},
			&testbed{}, results.Unknown, `line 9: await fact role server-1: not within 30ms; the last answer was "true"; expected "leader"`,
		},
		{
			"a fact that stays so",
			[]string{acquire, "{await: fact, fact: role, node: server-1, is_not: \"true\", within: 30ms}"},
			&testbed{}, results.Unknown, `the last answer was "true"; expected anything but "true"`,
		},
		{
			"a question that is not answered",
			[]string{acquire, "{await: fact, fact: role, node: server-1, is: leader, within: 30ms}"},
			&testbed{ask: func(_, fact string) (string, error) {
				if fact == "role" {
					return "leader", errTest
				}
				return "true", nil
			}},
			results.Unknown, "the last answer was an error: a machine that says no",
		},
		{
			"a point that is not reached",
			[]string{"{do: arm, user: A, point: nowhere, action: wait}", acquire, "{await: point, user: A, point: nowhere, within: 20ms}"},
			&testbed{},
			results.Unknown, "line 10: await point  A: not within 20ms",
		},
		{
			"an end of what was never granted",
			[]string{"{do: acquire, user: A, outcome: any}", "{await: validity-over, user: A, within: 20ms}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"acquire": info})}},
			results.Unknown, "A was never granted a lock",
		},
		{
			"an end that is too far away",
			[]string{acquire, "{await: validity-over, user: A, within: 20ms}"},
			&testbed{},
			results.Unknown, "line 9: await validity-over  A: not within 20ms",
		},
		{
			"a fault that does not bite",
			[]string{acquire, "{inject: trouble, on: A}"},
			&testbed{faults: map[string]*fakeFault{"trouble": {inject: injects(history.NotInstalled, nil)}}},
			results.Unknown, "line 9: inject trouble on A: not-installed: as the test says",
		},
		{
			"a fault of which nobody knows whether it bit",
			[]string{acquire, "{inject: trouble, on: A}"},
			&testbed{faults: map[string]*fakeFault{"trouble": {inject: injects(history.Indeterminate, nil)}}},
			results.Unknown, "line 9: inject trouble on A: indeterminate: as the test says",
		},
		{
			"a heal that fails",
			[]string{acquire, "{inject: trouble, on: A, as: it}", "{heal: it}"},
			&testbed{faults: map[string]*fakeFault{"trouble": {heal: answers(history.Installed, errTest)}}},
			results.Unknown, "line 10: heal it: it did not heal",
		},
		{
			"a heal of which nobody knows whether it was done",
			[]string{acquire, "{inject: trouble, on: A, as: it}", "{heal: it}"},
			&testbed{faults: map[string]*fakeFault{"trouble": {heal: answers(history.Indeterminate, nil)}}},
			results.Unknown, "line 10: heal it: it did not heal",
		},
		{
			"a write of what was not read",
			[]string{acquire, "{do: write, user: A, plus: 1}"},
			&testbed{},
			results.Unknown, "line 9: A write: A has not read lock-0 yet, or did not wait for the answer",
		},
		{
			"a write of what was not read for certain",
			[]string{acquire, "{do: read, user: A, outcome: any}", "{do: write, user: A, plus: 1}"},
			&testbed{scripts: map[string]script{"client-1": answering(map[string]*wire.Result{"read": info})}},
			results.Unknown, "line 10: A write: A has not read lock-0 yet, or did not wait for the answer",
		},
		{
			"a write of one more than was read",
			[]string{acquire, "{do: read, user: A}", "{do: write, user: A, plus: 1}"},
			&testbed{scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
				a.carryOut(c)
				if c.Do == wire.DoWrite && c.Value != 42 {
					return &wire.Result{Outcome: wire.OutcomeFail, Error: fmt.Sprintf("it was told to write %d", c.Value)}
				}
				return &wire.Result{Outcome: wire.OutcomeOK, Value: 41}
			}}}},
			results.Pass, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := c.bed
			s.t, s.tune = t, func(r *run) { r.within.answer = 10 * time.Millisecond }
			if s.faults == nil {
				s.faults = map[string]*fakeFault{"trouble": {}}
			}
			got := s.run(t.Context(), directed(c.steps...))
			s.wantVerdict(got, c.want, c.reason)
			for _, f := range got.faults {
				if f.Healed == nil {
					t.Errorf("%s was not healed", f.Name)
				}
			}
		})
	}
}

// TestTheStepAfterOneThatIsNotMetIsNotTaken.
func TestTheStepAfterOneThatIsNotMetIsNotTaken(t *testing.T) {
	t.Parallel()
	f := &fakeFault{}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}}
	got := s.run(t.Context(), directed("{do: acquire, user: A}", "{await: event, event: lost, user: A, within: 10ms}", "{inject: trouble, on: A}"))
	s.wantVerdict(got, results.Unknown, "not within 10ms")
	if len(got.faults) != 0 || f.healed() != 0 {
		t.Errorf("%d faults were injected after it", len(got.faults))
	}
}

// acquired returns the grant of a client's first user.
func acquired(valid int64) history.Event {
	return history.Event{Time: clock.Now(), Op: 1, Grant: 1, Kind: history.Acquire, Phase: history.Ok, Valid: valid}
}

// TestTheEndOfAValidityIsAwaited by the user's own reckoning, renewals included.
func TestTheEndOfAValidityIsAwaited(t *testing.T) {
	t.Parallel()
	var until int64
	s := &testbed{t: t, scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
		if c.Do == wire.DoAcquire {
			asked := a.emit(history.Event{Kind: history.Acquire, Phase: history.Invoke})
			a.emit(history.Event{Kind: history.Acquire, Phase: history.Ok, Op: asked.Op, Grant: asked.Op, Token: 1, Value: asked.Time, Valid: asked.Time + int64(20*time.Millisecond)})
			until = clock.Now() + int64(60*time.Millisecond)
			a.emit(history.Event{Kind: history.Renewed, Phase: history.Info, Grant: asked.Op, Valid: until})
			a.held = asked.Op
		} else {
			a.carryOut(c)
		}
		return &wire.Result{Outcome: wire.OutcomeOK}
	}}}}
	got := s.run(t.Context(), directed("{do: acquire, user: A}", "{await: validity-over, user: A}", "{do: release, user: A}"))
	s.wantVerdict(got, results.Pass)
	if freed := got.events(t, history.Release); len(freed) == 0 || freed[0].Time <= until {
		t.Errorf("valid until %d; %+v", until, freed)
	}
}

// TestAValidityIsOverByAnyClock: the wait ends after the validity, and later by the error of the user's clock.
func TestAValidityIsOverByAnyClock(t *testing.T) {
	t.Parallel()
	for _, answers := range []time.Duration{0, 10 * time.Millisecond} { // after which the clock answers: the longer, the less is known; 0: it is the run's
		for _, left := range []time.Duration{0, 20 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				c := &watch.Clock{RemoteClock: wire.NewRemoteClock("client-1", func(context.Context) (int64, error) {
					time.Sleep(answers)
					return clock.Now(), nil
				})}
				if answers > 0 {
					if _, err := c.Measure(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				l, until := live.New(), clock.Now()+int64(left)
				l.Observe(0, []history.Event{acquired(until)}, true)
				r := &stepRunner{plan: &plan.Plan{StepUsers: []string{"A"}}, live: l, processes: &control.Processes{All: []*control.Process{{Clock: c}}}}
				if err := r.awaitValidity(t.Context(), scenarios.Step{User: "A"}); err != nil {
					t.Fatal(err)
				}
				wrong := answers/2 + time.Millisecond // the error grows by less than this meanwhile
				if late := time.Duration(clock.Now() - until); late <= answers/2 || late > wrong {
					t.Errorf("its clock answers after %v: the wait for the end in %v was over %v late", answers, left, late)
				}
			})
		}
	}
}

// TestIncrementingSteps: all writes of the steps add one to what was read, and there is at least one.
func TestIncrementingSteps(t *testing.T) {
	t.Parallel()
	next, other := scenarios.Step{Do: wire.DoWrite, Plus: 1}, scenarios.Step{Do: wire.DoWrite, Value: 5}
	for _, c := range []struct {
		steps []scenarios.Step
		want  bool
	}{{nil, false}, {[]scenarios.Step{{Do: wire.DoRead}}, false}, {[]scenarios.Step{next}, true}, {[]scenarios.Step{next, next}, true}, {[]scenarios.Step{next, other}, false}} {
		if got := increments(c.steps); got != c.want {
			t.Errorf("%+v: %t", c.steps, got)
		}
	}
}

// TestAValidityWithoutATime: a validity without end is not waited for. One that its user does not know counts as
// over.
func TestAValidityWithoutATime(t *testing.T) {
	t.Parallel()
	for valid, want := range map[int64]string{history.ValidEndless: "A has a grant without end", history.ValidUnknown: ""} {
		l := live.New()
		l.Observe(0, []history.Event{acquired(valid)}, true)
		r := &stepRunner{plan: &plan.Plan{StepUsers: []string{"A"}}, live: l, processes: &control.Processes{All: []*control.Process{{Clock: watch.NewClock("client-1", nil, nil)}}}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // a wait for a time ends with it
		if err := r.awaitValidity(ctx, scenarios.Step{User: "A"}); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("valid %d: %v, want %q", valid, err, want)
		}
	}
}

// TestWhenAUserWasAtAPointIsWrittenDown: when it reached the point, and when it continued.
func TestWhenAUserWasAtAPointIsWrittenDown(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
		a.carryOut(c)
		if c.Do == wire.DoAcquire {
			_ = a.conn.Send(wire.Frame{Type: wire.TypePoint, Point: &wire.Point{Point: "before-free"}})
		}
		return &wire.Result{Outcome: wire.OutcomeOK}
	}}}}
	got := s.run(t.Context(), directed(
		"{do: arm, user: A, point: before-free, action: wait}", "{do: acquire, user: A, async: true}", "{await: point, user: A, point: before-free}",
		"{do: continue, user: A, point: before-free}", "{do: release, user: A}",
	))
	s.wantVerdict(got, results.Pass)
	seen, err := results.ReadObserved(got.dir)
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for _, o := range seen {
		points = append(points, fmt.Sprintf("%d %s %s %s %s", o.Step, o.By, o.Node, o.Fact, o.Answer))
	}
	if want := []string{"3 point client-1 before-free reached", "4 point client-1 before-free left"}; !slices.Equal(points, want) {
		t.Errorf("observed are %q, want %q", points, want)
	}
}

// TestCostOfACall requires the requests of an acquire or a release if nothing else adds to them, less those of a
// reading; otherwise none.
func TestCostOfACall(t *testing.T) {
	t.Parallel()
	const acquire, release = "{do: acquire, user: A}", "{do: release, user: A}"
	for _, c := range []struct {
		name               string
		steps              []string
		acquires, releases []int64
	}{
		{"two of each", []string{acquire, release, acquire, release}, []int64{5, 5}, []int64{3, 3}},
		{"another user", []string{acquire, release, "{do: acquire, user: B}"}, nil, nil},
		{"a fault", []string{acquire, "{inject: trouble, on: A, as: it}", release, "{heal: it}"}, nil, nil},
		{"nobody waits for it", []string{acquire, "{do: release, user: A, async: true}", "{await: elapsed, for: 5ms}"}, []int64{5}, nil},
		{"a release that was not done", []string{acquire, "{do: release, user: A, outcome: any}"}, []int64{5}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			how := script{commanded: func(a *fakeNode, o wire.Command) *wire.Result {
				a.carryOut(o)
				asked.Add(map[string]int64{wire.DoAcquire: 5, wire.DoRelease: 3}[o.Do])
				if c.name == "a release that was not done" && o.Do == wire.DoRelease {
					return &wire.Result{Outcome: wire.OutcomeInfo}
				}
				return &wire.Result{Outcome: wire.OutcomeOK}
			}}
			s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}, scripts: map[string]script{"client-1": how, "client-2": how}, counts: func() int64 { return asked.Add(1) }}
			if got := s.run(t.Context(), directed(c.steps...)).env; !slices.Equal(got.Acquires, c.acquires) || !slices.Equal(got.Releases, c.releases) {
				t.Errorf("acquires %v, releases %v; want %v, %v", got.Acquires, got.Releases, c.acquires, c.releases)
			}
		})
	}
}

// TestAnAnswerBehindAnInterruptionRefutesNothing: a user that must not get a lock during a fault may get it when the
// interruption heals the fault.
func TestAnAnswerBehindAnInterruptionRefutesNothing(t *testing.T) {
	t.Parallel()
	for _, async := range []string{"", ", async: true"} {
		for range 10 { // the answer and the interruption come at once: either may be seen first
			ctx, cancel := context.WithCancel(t.Context())
			s := &testbed{t: t, realTime: true, scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
				if c.Do == wire.DoRelease {
					cancel()
				}
				a.carryOut(c)
				return &wire.Result{Outcome: wire.OutcomeOK}
			}}}}
			got := s.run(ctx, directed("{do: acquire, user: A}", "{do: release, user: A, outcome: not-ok"+async+"}", "{await: elapsed, for: 100ms}"))
			s.wantVerdict(got, results.Unknown)
			cancel()
		}
	}
}
