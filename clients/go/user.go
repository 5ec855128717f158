package lockquake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// user is one lock user. It runs a workload or carries out orders.
type user struct {
	s          *session
	number     int
	id         uint32
	random     *rand.Rand
	lock       Lock
	register   *register
	base, load context.Context // base: operations on a grant; load: acquires, ends at the stop
	call       sync.Mutex      // serializes the methods of Lock
	orders     chan order
	holds      map[int]*hold
	given      map[int]Grant // the grant it released last, by lock
	closed     bool          // by an order; written while mu is held
	cycles     int64
	free, lag  int64      // open loop: when it became idle; its worst lag behind the schedule
	armed      int32      // number of armed points
	mu         sync.Mutex // guards the fields below
	points     map[string]string
	waiting    string
	let        chan struct{} // closed to let a user that waits at a point go on
	under      uint32        // the acquire that is under way
	quit       func()        // cancels it; nil if none is
}

func newUser(s *session, number int) *user {
	u := &user{
		s: s, number: number, id: uint32(s.start.Index)<<16 | uint32(number), holds: map[int]*hold{},
		given:  map[int]Grant{},
		points: map[string]string{},
		random: rand.New(rand.NewSource(int64(s.start.Seed)*7919 + int64(number))),
	}
	u.base = context.WithValue(context.Background(), userKey{}, u)
	u.load = context.WithValue(s.load, userKey{}, u)
	return u
}

func (u *user) join() (err error) {
	if u.lock == nil {
		if u.lock, err = u.s.connect(&u.s.start.Access); err != nil {
			return fmt.Errorf("connect user %d: %w", u.number, err)
		}
	}
	if r := u.s.start.Resource; r != nil && u.register == nil {
		u.register = &register{address: r.Address, guard: r.Guard, versions: map[int]version{}}
	}
	return nil
}

// acquire takes a lock. Intended is the time of its arrival in an open loop, else 0.
func (u *user) acquire(lock int, intended int64, timeout time.Duration) (*hold, error) {
	for u.s.stream.isCrowded() && u.load.Err() == nil {
		u.s.sleep(time.Millisecond)
	}
	if u.load.Err() != nil {
		return nil, errHalted
	}
	if late := Now() - larger(intended, u.free); intended != 0 && late > u.lag {
		u.lag = late
	}
	e := event{
		user: u.id, kind: kindAcquire, phase: invoke, lock: uint16(lock), value: intended,
		valid: Now() + int64(timeout),
	}
	seq, asked := u.s.stream.event(e)
	ctx, cancel := context.WithTimeout(u.load, timeout)
	defer cancel()
	u.underWay(seq, cancel)
	u.call.Lock()
	g, err := u.take(ctx, func() (Grant, error) { return u.lock.Acquire(ctx, u.s.start.Locks[lock]) })
	u.call.Unlock()
	u.underWay(0, nil)
	if err != nil {
		e.value, e.valid = 0, 0
		return nil, u.failed(e, seq, err)
	}
	u.cycles++
	h := &hold{user: u, lock: lock, op: seq, grant: g, valid: g.Valid, over: make(chan struct{})}
	if seq != 0 {
		e = h.event(kindAcquire)
		e.phase, e.op, e.valid, e.value = done, seq, g.Valid, larger(g.Sent, asked)
		u.s.stream.flushed(e)
	}
	h.follow()
	At(u.base, "acquired")
	return h, nil
}

// take calls ask between the points around each acquire.
func (u *user) take(ctx context.Context, ask func() (Grant, error)) (Grant, error) {
	At(ctx, "before-lock")
	g, err := ask()
	if err == nil {
		At(ctx, "lock-done")
	}
	return g, err
}

func (u *user) underWay(seq uint32, quit func()) {
	u.mu.Lock()
	u.under, u.quit = seq, quit
	u.mu.Unlock()
}

// giveUp cancels the acquire that is under way. The cancel is recorded before the acquire learns of it.
func (u *user) giveUp() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.quit == nil {
		return refuse("no acquire of user %d is under way", u.number)
	}
	if u.under != 0 {
		u.s.stream.flushed(event{user: u.id, kind: kindCancel, phase: info, op: u.under})
	}
	u.quit()
	return nil
}

// close closes the lock, possibly during another call. The user's holds end here, because it is unknown whether the
// service still keeps them.
func (u *user) close(timeout time.Duration) error {
	c, ok := u.lock.(io.Closer)
	if !ok {
		return refuse("this lock cannot be closed")
	}
	u.mu.Lock()
	closed, held := u.closed, u.holds
	u.closed, u.holds = true, map[int]*hold{}
	u.mu.Unlock()
	if closed {
		return refuse("user %d has closed its lock", u.number)
	}
	for _, h := range held {
		h.giveAway()
	}
	e := event{user: u.id, kind: kindClose, phase: invoke, valid: Now() + int64(timeout)}
	seq, _ := u.s.stream.flushed(e)
	if e.valid = 0; seq == 0 {
		return c.Close()
	}
	if err := c.Close(); err != nil {
		return u.failed(e, seq, err)
	}
	e.phase, e.op = done, seq
	u.s.stream.event(e)
	return nil
}

// releaseUnheld releases a lock that the user does not hold.
func (u *user) releaseUnheld(h *hold, lock int, timeout time.Duration) error {
	r, ok := u.lock.(UnheldReleaser)
	switch {
	case !ok:
		return refuse("this lock cannot release without a grant")
	case h != nil:
		return refuse("user %d has %s in hand: release it first", u.number, u.s.start.Locks[lock])
	}
	u.call.Lock()
	defer u.call.Unlock()
	var last *Grant
	if g, ok := u.given[lock]; ok {
		last = &g
	}
	e := event{user: u.id, kind: kindReleaseUnheld, phase: invoke, lock: uint16(lock), valid: Now() + int64(timeout)}
	seq, _ := u.s.stream.flushed(e)
	e.valid = 0
	ctx, cancel := context.WithTimeout(u.base, timeout)
	defer cancel()
	if err := r.ReleaseUnheld(ctx, u.s.start.Locks[lock], last); err != nil {
		return u.failed(e, seq, err)
	}
	if e.phase, e.op = done, seq; seq != 0 {
		u.s.stream.event(e)
	}
	return nil
}

func larger(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// failed records the end of an operation that failed or whose outcome is unknown.
func (u *user) failed(e event, seq uint32, err error) error {
	e.op = seq
	if e.phase, e.code = outcome(err); !errors.Is(err, context.Canceled) { // a stop is not an error
		u.s.tally(err)
	}
	if seq != 0 {
		u.s.stream.event(e)
	}
	return err
}

// refusal is an error for an order that the client itself refuses.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...interface{}) error { return refusal(fmt.Sprintf(format, args...)) }

const (
	errStopped = refusal("stopped before the write: the grant is lost or expired")
	errHalted  = refusal("the client was stopped")
	errShared  = refusal("this lock is only exclusive")
)

// certain lists the errors after which an operation certainly had no effect, with their codes.
var certain = []struct {
	err  error
	code byte
}{{ErrContended, 1}, {ErrNotHeld, 2}, {ErrLost, 3}, {ErrNotSent, 5}, {errFenced, 6}, {ErrRefused, 8}}

// outcome returns the phase and the code of an error: failed if the operation certainly had no effect, info if the
// outcome is unknown.
func outcome(err error) (phase, code byte) {
	for _, c := range certain {
		if errors.Is(err, c.err) {
			return failed, c.code
		}
	}
	var own refusal
	if errors.As(err, &own) {
		return failed, 9
	}
	var timeout interface{ Timeout() bool }
	var network *net.OpError
	var number syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		return info, 7
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) &&
		timeout.Timeout():
		return info, 4
	case errors.As(err, &network), errors.As(err, &number), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed):
		return info, 5
	}
	return info, 9
}

// reached is called at each announced point while any point is armed.
func (u *user) reached(point string) {
	u.mu.Lock()
	action, ok := u.points[point]
	if !ok || u.s.load.Err() != nil {
		u.mu.Unlock()
		return
	}
	delete(u.points, point)
	atomic.StoreInt32(&u.armed, int32(len(u.points)))
	let := make(chan struct{})
	u.waiting, u.let = point, let
	u.mu.Unlock()
	u.s.stream.send("point", map[string]interface{}{"user": u.number, "point": point, "time": Now()})
	if action == "die" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		os.Exit(137) // if this is the first process of a pid namespace, the kernel ignores its SIGKILL
	}
	<-let
}

// arm makes the user wait or die at a point.
func (u *user) arm(point, action string) error {
	if point == "" || action != "wait" && action != "die" {
		return refuse("arm needs a point, and wait or die as action")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.points[point] = action
	atomic.StoreInt32(&u.armed, int32(len(u.points)))
	return nil
}

// proceed lets a user go on that waits at the given point, or at any point if it is "".
func (u *user) proceed(point string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.let == nil || point != "" && point != u.waiting {
		return refuse("user %d does not wait at point %q", u.number, point)
	}
	close(u.let)
	u.let = nil
	return nil
}

// obey runs a user that carries out orders.
func (u *user) obey() {
	for o := range u.orders {
		r := result{ID: o.ID}
		var err error = errHalted
		if u.load.Err() == nil {
			if err = u.join(); err == nil {
				err = u.carryOut(o, &r)
			}
		}
		u.s.answer(r, err)
	}
	for _, h := range u.holds { // errors are recorded
		for h.isReentered() {
			_ = h.leave(u.s.timeout)
		}
		_ = h.release(u.s.timeout)
	}
}

// closeNow closes the lock even if another call is under way.
func (u *user) closeNow(o order) {
	err := u.join()
	if err == nil {
		err = u.close(u.timeout(o))
	}
	u.s.answer(result{ID: o.ID}, err)
}

func (u *user) timeout(o order) time.Duration {
	if o.Timeout > 0 {
		return time.Duration(o.Timeout)
	}
	return u.s.timeout
}

// held returns the user's hold of a lock, and whether the user has closed its lock.
func (u *user) held(lock int) (h *hold, closed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.holds[lock], u.closed
}

// keep keeps a new hold, unless the lock was closed meanwhile.
func (u *user) keep(h *hold) {
	u.mu.Lock()
	closed := u.closed
	if !closed {
		u.holds[h.lock] = h
	}
	u.mu.Unlock()
	if closed {
		h.giveAway()
	}
}

func (u *user) drop(lock int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.holds, lock)
}

func (u *user) carryOut(o order, r *result) (err error) {
	timeout := u.timeout(o)
	h, closed := u.held(o.Lock)
	if closed {
		return refuse("user %d has closed its lock", u.number)
	}
	if o.Do == "acquire" || o.Do == "reenter" {
		return u.obtain(h, o, r)
	}
	if o.Do == "release-unheld" {
		return u.releaseUnheld(h, o.Lock, timeout)
	}
	if h == nil {
		return refuse("user %d has no grant of %s in hand", u.number, u.s.start.Locks[o.Lock])
	}
	switch o.Do {
	case "release":
		if h.isReentered() {
			return h.leave(timeout)
		}
		u.drop(o.Lock)
		u.given[o.Lock] = h.grant
		return h.release(timeout)
	case "renew":
		return h.renew(timeout)
	case "check":
		return h.check(timeout)
	case "read":
		r.Value, err = h.read(timeout)
		return err
	}
	return h.write(o.Value, timeout)
}

// obtain acquires a lock, of which the user may have the hold h, or takes it once more.
func (u *user) obtain(h *hold, o order, r *result) (err error) {
	switch {
	case o.Mode != "" && o.Mode != "exclusive":
		return errShared
	case h != nil && h.stands(0) && o.Do == "reenter":
		r.Value = int64(h.grant.Token)
		r.Grant, err = h.reenter(u.timeout(o))
		return err
	case h != nil && h.stands(0):
		return refuse("user %d has %s in hand already", u.number, u.s.start.Locks[o.Lock])
	case h != nil:
		h.unfollow()
		h.gone() // an expired grant counts as lost from here at the latest
		u.drop(o.Lock)
	}
	if h, err = u.acquire(o.Lock, 0, u.timeout(o)); err != nil {
		return err
	}
	u.keep(h)
	r.Value, r.Grant = int64(h.grant.Token), h.grant.ID
	return nil
}
