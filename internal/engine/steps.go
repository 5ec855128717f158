package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// stepRunner takes the scenario's steps, one after another. A story must come out the same every time, so its steps
// wait for events and facts, not for a time to pass. Each has a deadline. A run with a step that was not met is
// unknown: it shows nothing about the lock.
//
// Example: "A acquire", "inject kill on redis-1", "await fact role of redis-2 is master, within 10s", "B acquire". B
// asks only once the failover was seen.
type stepRunner struct {
	plan      *plan.Plan
	within    *deadlines
	live      *live.Table
	processes *control.Processes
	counters  deployment.Counters
	injector  *injector
	observer  *observer
	record    *rundir.Dir
	reporter  *reporter

	read  lastRead
	named map[string]*rundir.Injected // by the name that a step gave it
}

// take takes the scenario's steps in order. A step that is not met ends them, and the run is unknown.
func (r *stepRunner) take(ctx context.Context) error {
	if len(r.plan.Scenario.Steps) == 0 {
		return nil
	}
	if err := sleepUntil(ctx, r.record.Start()); err != nil {
		return err
	}
	during, over := context.WithCancel(ctx)
	r.observer.during, r.observer.background = during, ctx
	defer over()
	for i, st := range r.plan.Scenario.Steps {
		r.reporter.tell(plan.DescribeStep(st))
		sctx, cancel := context.WithTimeoutCause(ctx, st.Within, fmt.Errorf("not within %v", st.Within))
		began := clock.Now()
		err := r.step(sctx, i, st)
		cancel()
		if err != nil {
			err = fmt.Errorf("line %d: %s: %w", st.Line, plan.DescribeStep(st), err)
			r.miss(st, began, err)
			return err
		}
	}
	return nil
}

func (r *stepRunner) step(ctx context.Context, i int, st scenarios.Step) error {
	switch {
	case st.Do != "":
		return r.doStep(ctx, i+1, st)
	case st.Observe != "":
		return r.observer.observe(ctx, i+1, st)
	case st.Inject != "":
		f := r.injector.inject(ctx, plan.Due{Inj: r.plan.StepFaults[i]}, clock.Now())
		if st.As != "" {
			r.named[st.As] = f
		}
		if f.Receipt.Status != history.Installed {
			return fmt.Errorf("%s: %s", f.Receipt.Status, f.Receipt.Evidence)
		}
		return nil
	case st.Heal != "":
		f := r.named[st.Heal]
		if f == nil {
			return fmt.Errorf("nothing called %q was injected", st.Heal)
		}
		r.injector.heal(f, 0)
		if f.Healed == nil || f.Healed.Status != history.Installed {
			return errors.New("it did not heal")
		}
		return nil
	default:
		return r.awaitStep(ctx, i+1, st)
	}
}

// miss records that a required step was not done, if that is certain or its deadline is over.
func (r *stepRunner) miss(st scenarios.Step, began int64, err error) {
	m := results.Missed{Text: err.Error(), From: began, To: clock.Now()}
	var answer outcomeError
	switch answered := errors.As(err, &answer); {
	case !st.Demanded || errors.Is(err, watch.ErrEnded) || errors.Is(err, context.Canceled):
		return
	case answered && answer.Outcome == wire.OutcomeFail && m.To-m.From < int64(st.Within):
	case m.To-m.From >= int64(st.Within):
		m.Within = int64(st.Within)
	default: // its result is unknown
		return
	}
	r.record.Change(func(e *results.Env) { e.Missed = append(e.Missed, m) })
}

// awaited reports whether a later step waits until the user of an arm step reaches its point.
func awaited(later []scenarios.Step, arm scenarios.Step) bool {
	return slices.ContainsFunc(later, func(st scenarios.Step) bool {
		return st.Await == "point" && st.User == arm.User && st.Point == arm.Point
	})
}

// outcomeError is an answer other than its step wants.
type outcomeError struct {
	wire.Result
	want string
}

func (e outcomeError) Error() string {
	return fmt.Sprintf("its outcome is %s (%s), the step wants %s", e.Outcome, e.Result.Error, e.want)
}

// user returns the client of a user that steps name, and the user.
func (r *stepRunner) user(name string) (*control.Process, history.User) {
	k := r.plan.StepUserIndex(slices.Index(r.plan.StepUsers, name))
	return r.processes.All[k], history.MakeUser(k, 0)
}

// other is the number of the second lock object in the process of a user that steps name.
const other = 1

func (r *stepRunner) doStep(ctx context.Context, number int, st scenarios.Step) error {
	s, user := r.user(st.User)
	if st.Object == scenarios.OtherObject {
		user = history.MakeUser(user.Client(), other)
	}
	if st.Do == wire.DoAcquire {
		r.live.Forget(user)
	}
	if st.Do == wire.DoArm {
		r.arm(number, st, s, user)
	}
	lock := slices.Index(r.plan.Locks, st.Lock)
	value, err := r.read.plus(st, user, lock)
	if err != nil {
		return err
	}
	counted := r.countRequests(ctx, st)
	ch, err := s.Order(wire.Command{
		Do: plan.Order(st), User: user.Index(), Lock: lock, Mode: st.Mode, Value: value, Timeout: int64(st.Within),
		Point: st.Point, Action: st.Action,
	})
	if err != nil && st.Async && !st.Demanded {
		return nil // its process has ended, as when it dies before it answers
	}
	if err != nil {
		return err
	}
	if st.Async {
		r.observer.asking.Go(func() { r.answered(number, st, s, ch) })
		return nil
	}
	// The client has the same deadline, and its answer, which says more, should come first.
	limit := st.Within + r.within.answer
	actx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit,
		fmt.Errorf("no result within %s", limit))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	defer stop()
	res, err := s.Answer(actx, ch, st.Do)
	if err != nil {
		return err
	}
	if st.Do == wire.DoRead && res.Outcome == wire.OutcomeOK {
		r.read[userLock{user, uint16(lock)}] = res.Value
	}
	if counted != nil && res.Outcome == wire.OutcomeOK {
		counted()
	}
	r.done(ctx, number, st, res)
	return unwanted(st, res)
}

// arm notes that a user is about to be armed.
func (r *stepRunner) arm(number int, st scenarios.Step, s *control.Process, user history.User) {
	r.live.ForgetPoint(user, st.Point)
	if st.Action == wire.ActionDie {
		r.processes.ExpectDeath(s.Node)
	}
	if !awaited(r.plan.Scenario.Steps[number:], st) {
		r.observer.passes(number, s.Node.Name(), user, st)
	}
}

// answered waits for the answer to an async step.
func (r *stepRunner) answered(number int, st scenarios.Step, s *control.Process, ch <-chan wire.Result) {
	began := clock.Now()
	res, err := s.Answer(r.observer.background, ch, st.Do)
	if err != nil {
		return
	}
	r.done(r.observer.background, number, st, res)
	if err := unwanted(st, res); err != nil && st.Demanded {
		err = fmt.Errorf("line %d: %s: %w", st.Line, plan.DescribeStep(st), err)
		r.record.Unknown("%v", err)
		r.miss(st, began, err)
	}
}

// unwanted is the error of an answer that is not what the step wants.
func unwanted(st scenarios.Step, res wire.Result) error {
	want := cmp.Or(st.Outcome, wire.OutcomeOK)
	if want != "any" && want != scenarios.NotOK && res.Outcome != want {
		return outcomeError{res, want}
	}
	return nil
}

// countRequests counts the requests to the servers for an acquire or a release. Call the returned function after the
// call. It is nil if the count would not be exact: there are other users, something is broken, or the servers do not
// count. The counters are read twice before the call, since a reading is a request too.
//
// Example: the counters are at 100 and at 101 before the release, and at 105 after it. It took 4 - 1 = 3 requests: a
// script, and the GET and DEL in it.
func (r *stepRunner) countRequests(ctx context.Context, st scenarios.Step) (done func()) {
	p := r.plan
	alone := len(p.StepUsers) == 1 && p.Workload == nil && len(p.StepFaults) == 0 && len(p.Scenario.Chaos) == 0
	counter := r.counters.Requests()
	if counter == nil || p.Backend.CountsLate || !alone || (st.Do != wire.DoAcquire && st.Do != wire.DoRelease) ||
		st.Async {
		return nil
	}
	read := func() map[string]int64 {
		ctx, cancel := context.WithTimeout(ctx, deployment.ReadingTimeout)
		defer cancel()
		return counter.Requests(ctx)
	}
	first := read()
	before := read()
	return func() {
		after := read()
		own, ok := results.Between(first, before)
		all, same := results.Between(before, after)
		if !ok || !same {
			return
		}
		r.record.Change(func(e *results.Env) {
			into := &e.Acquires
			if st.Do == wire.DoRelease {
				into = &e.Releases
			}
			*into = append(*into, all-own)
		})
	}
}

// done records what the result of a step shows. If the steps were cut short, by Ctrl-C or at their end, faults may be
// healed before the answer comes. An acquire that must not succeed during those faults may then succeed.
func (r *stepRunner) done(ctx context.Context, number int, st scenarios.Step, res wire.Result) {
	s, user := r.user(st.User)
	// the scenario's claim does not hold
	if st.Outcome == scenarios.NotOK && res.Outcome == wire.OutcomeOK && !errors.Is(ctx.Err(), context.Canceled) {
		r.record.Change(func(e *results.Env) {
			e.Refuted = append(e.Refuted, fmt.Sprintf("step %d, %s of %s, was done, but must not be", number, st.Do,
				st.User))
		})
	}
	switch {
	case st.Do == wire.DoReleaseUnheld: // whatever the answer, it may have freed the lock
		r.observer.answered(number, slices.Index(r.plan.Locks, st.Lock))
	case (st.Do == wire.DoRenew || st.Do == wire.DoRelease) && res.Outcome != wire.OutcomeInfo:
		r.observer.answered(number, slices.Index(r.plan.Locks, st.Lock))
	case st.Do == wire.DoAcquire && res.Outcome == wire.OutcomeFail: // it may have been granted all the same
		r.observer.failed(number, slices.Index(r.plan.Locks, st.Lock))
	case res.Outcome != wire.OutcomeOK:
	case st.Do == wire.DoAcquire:
		r.observer.granted(number, user, slices.Index(r.plan.Locks, st.Lock), res)
	case st.Do == wire.DoContinue:
		r.observer.atPoint(number, s.Node.Name(), st.Point, history.PointLeft)
	}
}

// lastRead holds the last value read by each user of the steps, by lock.
type lastRead map[userLock]int64

// userLock is a lock and a user of it.
type userLock struct {
	user history.User
	lock uint16
}

// plus returns the value that a write step writes.
func (l lastRead) plus(st scenarios.Step, user history.User, lock int) (int64, error) {
	if st.Plus == 0 {
		return st.Value, nil
	}
	v, ok := l[userLock{user, uint16(lock)}]
	if !ok {
		return 0, fmt.Errorf("%s has not read %s yet, or did not wait for the answer", st.User, st.Lock)
	}
	return v + st.Plus, nil
}

func (r *stepRunner) awaitStep(ctx context.Context, number int, st scenarios.Step) error {
	switch st.Await {
	case "elapsed":
		return clock.Sleep(ctx, st.For)
	case "fact":
		return r.awaitFact(ctx, number, st)
	case "bitten", "led":
		f := r.named[st.Of]
		if f == nil {
			return fmt.Errorf("nothing called %q was injected", st.Of)
		}
		if st.Await == "led" {
			return r.injector.leads.await(ctx, f)
		}
		return r.injector.awaitBitten(ctx, f)
	case "validity-over":
		return r.awaitValidity(ctx, st)
	case "point":
		s, user := r.user(st.User)
		if err := r.live.AwaitPoint(ctx, user, st.Point); err != nil {
			return err
		}
		r.observer.atPoint(number, s.Node.Name(), st.Point, r.plan.Passage(number, st))
		return nil
	case "event":
		_, user := r.user(st.User)
		return r.live.AwaitEvent(ctx, st.Event, user, r.awaitedLock(st))
	default:
		return fmt.Errorf("nothing called %q can be awaited", st.Await)
	}
}

// awaitedLock returns the number of the lock that an await names. It is -1, for any lock, if no step uses that lock.
func (r *stepRunner) awaitedLock(st scenarios.Step) int {
	return slices.Index(r.plan.Locks, st.Lock)
}

// awaitValidity waits until the user's latest grant is over by the user's reckoning, whatever its clock's error.
func (r *stepRunner) awaitValidity(ctx context.Context, st scenarios.Step) error {
	_, user := r.user(st.User)
	for {
		h, ok := r.live.Last(user, r.awaitedLock(st))
		switch {
		case !ok:
			return fmt.Errorf("%s was never granted a lock", st.User)
		case h.Valid == history.ValidEndless:
			return fmt.Errorf("%s has a grant without end", st.User)
		case h.Valid == history.ValidUnknown:
			return nil
		}
		over := h.Valid + r.processes.All[user.Client()].Clock.Error(h.Valid)
		if clock.Now() > over {
			return nil
		}
		if err := sleepUntil(ctx, min(over, clock.Now()+int64(50*time.Millisecond))+1); err != nil {
			return err
		}
	}
}

func (r *stepRunner) awaitFact(ctx context.Context, number int, st scenarios.Step) error {
	want := fmt.Sprintf("%q", st.Is)
	if st.IsNot != "" {
		want = fmt.Sprintf("anything but %q", st.IsNot)
	}
	for {
		got, err := r.observer.ask(ctx,
			rundir.Question{Step: number, By: history.ByAwait, Node: st.Node, Fact: st.Fact})
		if err == nil && (st.IsNot == "" && got == st.Is || st.IsNot != "" && got != st.IsNot) {
			return nil
		}
		if serr := clock.Sleep(ctx, askAgain); serr != nil {
			if err != nil {
				return fmt.Errorf("%w; the last answer was an error: %w", serr, err)
			}
			return fmt.Errorf("%w; the last answer was %q; expected %s", serr, got, want)
		}
	}
}

// increments reports whether the acknowledged writes of the steps count up: each adds one to what its user has read.
func increments(steps []scenarios.Step) bool {
	writes := 0
	for _, st := range steps {
		if st.Do == wire.DoWrite {
			writes++
			if st.Plus != 1 {
				return false
			}
		}
	}
	return writes > 0
}
