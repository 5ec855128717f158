package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// user is one lock user: a workloads.User that records what it does.
type user struct {
	s       *session
	name    history.User
	number  int
	base    context.Context // of operations that a stop must not cut off; armed
	random  *rand.Rand
	points  points
	asking  clock.Timeouts // of acquires
	holding clock.Timeouts // of operations while a grant is held
	watcher lock.Watcher   // nil: the lock reports no changes
	renewer lock.Renewer   // nil: grants are not extended
	res     resource.Connection

	call   sync.Mutex         // the methods of a Locker are called one at a time
	calls  context.Context    // of renewals and releases: it ends with base, and when the lock object is closed
	over   context.CancelFunc // ends it
	locker lock.Locker

	pending pendingAcquire
	tries   atomic.Uint32 // attempts of the acquire that is under way, as its lock announces them

	orders chan wire.Command  // command mode; made by the first command
	held   holds              // command mode
	given  map[int]lock.Grant // command mode: the last grant that the user released, by lock
	grants int64
	free   int64 // ns: since when the user has had nothing to do
	lag    int64 // ns: the worst lag of the schedule
}

func newRandom(seed uint64, number int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(number)+1))
}

// at returns ctx armed with this user's points and its count of attempts.
func (u *user) at(ctx context.Context) context.Context {
	return lock.CountAttempts(lock.Arm(ctx, u.points.reached), &u.tries)
}

// Identity returns the user's identity. Users are numbered process by process; each process has the same number.
func (u *user) Identity() workloads.Identity {
	w := u.s.start.Workload
	if w == nil {
		return workloads.Identity{Number: u.number, Total: 1, Process: 1}
	}
	return workloads.Identity{Number: u.s.start.Index*w.Users + u.number, Total: w.Total, Process: w.Users}
}

// Random returns the user's own source of randomness.
func (u *user) Random() *rand.Rand { return u.random }

// Acquire asks for a lock. The end of ctx and the scenario's timeout cut it off.
func (u *user) Acquire(ctx context.Context, lockNumber int, intended time.Time) (workloads.Hold, error) {
	return u.ask(ctx, demand{lock: lockNumber, intended: intended, timeout: u.s.timeout})
}

// AcquireShared is Acquire in shared mode.
func (u *user) AcquireShared(ctx context.Context, lockNumber int, intended time.Time) (workloads.Hold, error) {
	return u.ask(ctx, demand{lock: lockNumber, mode: lock.Shared, intended: intended, timeout: u.s.timeout})
}

func (u *user) ask(ctx context.Context, d demand) (workloads.Hold, error) {
	h, err := u.acquire(ctx, d)
	if err != nil {
		u.setFree(d.intended)
		return nil, err
	}
	h.intended = d.intended
	return h, nil
}

// demand is a request for a lock.
type demand struct {
	lock     int
	mode     lock.Mode
	intended time.Time // zero in a closed loop
	timeout  time.Duration
}

// setFree notes, in an open loop, since when the user can take the next arrival.
func (u *user) setFree(intended time.Time) {
	if !intended.IsZero() {
		u.free = clock.Of(time.Now())
	}
}

func (u *user) acquire(ctx context.Context, d demand) (*hold, error) {
	if err := u.admit(ctx); err != nil {
		return nil, err
	}
	e := u.event(history.Acquire, d.lock)
	e.Mode = uint8(d.mode)
	if !d.intended.IsZero() {
		e.Value = clock.Of(d.intended)
		// Once the arrival is due and the user is free, any further delay is the schedule's own.
		u.lag = max(u.lag, clock.Of(time.Now())-max(e.Value, u.free))
	}
	e.Valid = deadline(d.timeout)
	asked := u.s.rec.Append(&e)
	u.tries.Store(0)
	within := u.asking.Within(ctx, d.timeout)
	u.pending.set(asked.Seq, within.Cancel)
	u.call.Lock()
	g, err := u.locker.Acquire(within, lock.Request{Lock: u.s.start.Locks[d.lock], Mode: d.mode, TTL: u.s.access.TTL})
	u.call.Unlock()
	u.pending.set(0, nil)
	e.Valid, e.Tries = 0, u.tries.Load()
	gaveUp := errors.Is(within.Err(), context.DeadlineExceeded)
	within.End()
	if err != nil {
		if _, told := lock.ReasonOf(err); !told && gaveUp && errors.Is(err, lock.ErrContended) {
			err = lock.Because(lock.Reason{Cause: lock.CauseWaitOver, N: clock.Now() - asked.Time}, err)
		}
		u.failed(&e, asked, err)
		return nil, err
	}
	u.grants++
	h := &hold{u: u, lock: d.lock, op: asked.Seq, token: g.Token, mode: g.Mode, grant: g, valid: g.ValidUntil}
	h.again.of = h
	e.Phase, e.Op, e.Grant = history.Ok, asked.Seq, asked.Seq
	e.Token, e.Valid, e.Mode = uint64(g.Token), u.s.moment(g.ValidUntil), uint8(g.Mode)
	e.Value = asked.Time // not later than the request was sent
	if !g.Issued.IsZero() {
		e.Value = clock.Of(g.Issued)
	}
	u.finished(&e, asked, !u.s.brief) // else it is flushed with the release that follows at once
	u.because(&e, asked, g.Reason)
	h.watch()
	lock.At(u.base, workloads.PointAcquired)
	return h, nil
}

// admit holds back a user without a grant while too many events wait to be sent.
func (u *user) admit(ctx context.Context) error {
	for u.s.rec.Crowded() && ctx.Err() == nil {
		clock.Sleep(ctx, time.Millisecond)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return nil
}

// event begins the record of an operation.
func (u *user) event(k history.Kind, lockNumber int) history.Event {
	return history.Event{Kind: k, Phase: history.Invoke, User: u.name, Lock: uint16(lockNumber)}
}

// moment converts a validity into the form that events hold.
func (s *session) moment(v lock.Validity) int64 {
	if end, ok := v.Time(); ok {
		return clock.Ends(end, s.access.TTL)
	}
	if v.IsEndless() {
		return history.ValidEndless
	}
	return history.ValidUnknown
}

func (u *user) disconnect() error {
	var err error
	if !u.held.closed() {
		err = u.locker.Close()
	}
	if u.res != nil {
		_ = u.res.Close() // nothing was sent that needs an answer
	}
	return err
}
