package client

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// maxOrders is how many commands of one user may wait.
const maxOrders = 256

// command hands an order to its user, which carries out one after the other. Arming and continuing act at once,
// because they are meant for a user in the middle of an operation.
func (s *session) command(c wire.Command) error {
	if c.Do == wire.DoNotifications {
		return s.notifications(c)
	}
	u, err := s.person(c)
	if err != nil {
		return s.answer(c, result{err: err})
	}
	switch c.Do {
	case wire.DoArm:
		return s.answer(c, result{err: u.points.arm(c.Point, c.Action)})
	case wire.DoContinue:
		return s.answer(c, result{err: u.points.proceed(c.Point)})
	case wire.DoCancel:
		return s.answer(c, result{err: u.giveUp()})
	case wire.DoClose:
		s.running.Go(func() {
			if err := s.answer(c, result{err: u.close(s.within(c))}); err != nil {
				s.end(fmt.Errorf("result: %w", err))
			}
		})
		return nil
	}
	if u.orders == nil {
		orders := make(chan wire.Command, maxOrders)
		u.orders = orders
		s.running.Go(func() { u.obey(orders) })
	}
	select {
	case u.orders <- c:
		return nil
	default:
		return s.answer(c, result{err: refusal(fmt.Sprintf("%d orders of user %d are already waiting", maxOrders, c.User))})
	}
}

// notifications answers how often the service has woken the users of this process.
func (s *session) notifications(c wire.Command) error {
	n, ok := s.service.(backends.NotificationCounter)
	if !ok {
		return s.answer(c, result{err: refusal("lock " + s.access.Lock +
			" does not count the wake-ups of its users")})
	}
	return s.conn.Send(wire.Frame{
		Type:   wire.TypeResult,
		Result: &wire.Result{ID: c.ID, Outcome: wire.OutcomeOK, Count: n.Notifications()},
	})
}

// person returns the user that an order is for, and checks that the user may get it.
func (s *session) person(c wire.Command) (*user, error) {
	if c.User < 0 || c.User >= maxUsers {
		return nil, refusal(fmt.Sprintf("user is %d: want 0 to %d", c.User, maxUsers-1))
	}
	if c.Lock < 0 || c.Lock >= len(s.start.Locks) {
		return nil, refusal(fmt.Sprintf("lock is %d, the run has %d", c.Lock, len(s.start.Locks)))
	}
	switch c.Do {
	case wire.DoArm, wire.DoContinue:
	case wire.DoAcquire, wire.DoReenter, wire.DoRelease, wire.DoRenew, wire.DoCheck, wire.DoRead, wire.DoWrite,
		wire.DoCancel, wire.DoClose, wire.DoReleaseUnheld:
		if w := s.start.Workload; w != nil && c.User < w.Users {
			return nil, refusal(fmt.Sprintf("user %d runs a workload: it can only be armed and continued", c.User))
		}
	default:
		return nil, refusal(fmt.Sprintf("unknown order %q", c.Do))
	}
	ctx, cancel := context.WithTimeout(s.life, dialTimeout)
	defer cancel()
	if err := s.grow(ctx, c.User+1); err != nil {
		return nil, refusal(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[c.User], nil
}

// result is the outcome of an order.
type result struct {
	value int64
	grant string // id of the grant that was acquired
	err   error
}

// answer sends a result, after every event that came before it.
func (s *session) answer(c wire.Command, r result) error {
	a := wire.Result{ID: c.ID, Outcome: wire.OutcomeOK, Value: r.value, Grant: r.grant}
	if r.err != nil {
		a.Outcome, a.Error = wire.OutcomeInfo, r.err.Error()
		if phase, _ := outcome(r.err); phase == history.Fail {
			a.Outcome = wire.OutcomeFail
		}
	}
	s.rec.Flush()
	return s.conn.Send(wire.Frame{Type: wire.TypeResult, Result: &a})
}

// obey carries out orders until there are no more, and then releases whatever is still held.
func (u *user) obey(orders <-chan wire.Command) {
	for c := range orders {
		r := result{err: refusal("the client was stopped")}
		if u.s.load.Err() == nil {
			r = u.carryOut(c)
		}
		if err := u.s.answer(c, r); err != nil {
			u.s.end(fmt.Errorf("result: %w", err))
		}
	}
	for _, h := range u.held.all() {
		for over := false; !over && u.s.life.Err() == nil; {
			over, _ = h.again.giveBack(u.s.timeout) // recorded
		}
		h.unfollow()
	}
}

// dismiss lets the user continue from wherever it waits, and gives it no more orders.
func (u *user) dismiss() {
	u.points.open()
	if u.orders != nil {
		close(u.orders)
		u.orders = nil
	}
}

// within returns the time that an order may take.
func (s *session) within(c wire.Command) time.Duration {
	if c.Timeout > 0 {
		return time.Duration(c.Timeout)
	}
	return s.timeout
}

func (u *user) carryOut(c wire.Command) (r result) {
	timeout := u.s.within(c)
	h, closed := u.held.get(c.Lock)
	if closed {
		return result{err: hasClosed(u.number)}
	}
	if c.Do == wire.DoAcquire || c.Do == wire.DoReenter {
		mode, ok := lock.ParseMode(c.Mode)
		if !ok {
			return result{err: refusal(fmt.Sprintf("mode is %q: want exclusive or shared", c.Mode))}
		}
		if h != nil && c.Do == wire.DoReenter && h.stands() {
			return h.again.take(timeout)
		}
		return u.take(h, demand{lock: c.Lock, mode: mode, timeout: timeout})
	}
	if c.Do == wire.DoReleaseUnheld {
		return result{err: unheld{u, c.Lock}.release(h, timeout)}
	}
	if h == nil {
		return result{err: refusal(fmt.Sprintf("user %d has no grant of %s in hand", u.number,
			u.s.start.Locks[c.Lock]))}
	}
	switch c.Do {
	case wire.DoRelease:
		if !h.again.any() { // a close leaves nothing to end here
			u.held.drop(c.Lock)
			u.given[c.Lock] = h.current()
		}
		_, r.err = h.again.giveBack(timeout)
	case wire.DoRenew:
		r.err = h.renewNow(timeout)
	case wire.DoCheck:
		r.err = h.check(timeout)
	case wire.DoRead:
		r.value, r.err = h.read(timeout)
	case wire.DoWrite:
		r.err = h.write(c.Value, timeout)
	}
	return r
}

// take acquires a lock. If the user already has a hold of it, that must be lost or over.
func (u *user) take(old *hold, d demand) result {
	if old != nil {
		if old.stands() {
			return result{err: refusal(fmt.Sprintf("user %d already has %s in hand", u.number,
				u.s.start.Locks[d.lock]))}
		}
		old.changed(lock.Change{At: time.Now(), Lost: true}) // a grant that is over ends here at the latest
		old.unfollow()
		u.held.drop(d.lock)
	}
	ctx, cancel := context.WithCancel(u.at(u.s.load))
	defer cancel()
	defer context.AfterFunc(u.calls, cancel)()
	h, err := u.acquire(ctx, d)
	if err != nil {
		return result{err: err}
	}
	if !u.held.keep(h) {
		h.giveAway(d.timeout)
		h.unfollow()
	}
	return result{value: int64(h.token), grant: h.current().ID}
}

// stands reports whether the user may rely on its grant.
func (h *hold) stands() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lost && h.valid.Covers(time.Now())
}

// unfollow stops following the grant.
func (h *hold) unfollow() {
	if h.stop != nil {
		h.stop()
	}
	h.around.Wait()
}
