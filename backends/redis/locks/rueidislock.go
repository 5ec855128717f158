package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// rueidisGrace is how long a call of the library may go on after its context ended, to delete what it may have left
// behind.
const rueidisGrace = 500 * time.Millisecond

// rueidisLock is the library rueidislock on one client, so its KeyMajority is 1. All users of a process share one of
// its Lockers, which wait for the server's message that the key has changed (client-side caching) and renew every
// half TTL.
//
// The library can leave a waiter asleep for as long as its context lives, so a wait is restarted after a TTL. It
// happens after an attempt that failed without an answer: a server that is back a second after it was killed does not
// wake the waiter. In less than one of a thousand contended grants a race within the library causes it.
//
// Four settings differ from the library's defaults:
//   - Its client repeats nothing by itself (DisableRetry): a SET NX that is repeated after its reply was lost
//     finds its own key and takes it for another user's.
//   - The server does not notify a client of its own changes (NoLoopTracking, as in the library's own example; from
//     Redis 7.0.5). By default each renewal comes back as a change and is renewed again at once, 13,000 times a
//     second on two cores.
//   - An attempt may take the scenario's timeout instead of 20 ms.
//   - The context of a grant has no deadline, because the library would shorten the key's life to it.
//
// The adapter reads what it needs from the commands that the library passes to its client, and from their answers:
//   - the send time, and each renewal
//   - the expiry, a time of the client's wall clock (PXAT): a grant is valid for the time that was left until then
//     when the command was sent
//   - the final state of the key, because the library's release returns nothing
//
// A loss is reported when the library cancels the context of the grant, which may be half a TTL after the key
// expired.
func rueidisLock() backends.Lock {
	return backends.Lock{
		Name: "rueidislock",
		Doc: "The library github.com/redis/rueidis/rueidislock v1.0.79 on one client: waits for the server's invalidation messages, " +
			"renews by itself, expires keys by the client's wall clock.",
		Modules: []string{"github.com/redis/rueidis", "github.com/redis/rueidis/rueidislock"},
		Offers: backends.Offers{
			Blocking: true, Try: true, Renewal: "background", LossSignal: true, Token: backends.TokenNone,
			Reentrant: "no", Expires: true, WallClock: true,
		},
		Points: []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		MinTTL: 100 * time.Millisecond,
		// A waiter that misses the message asks again at the end of its turn. (A holder that fell silent believes in
		// its last renewal for up to one and a half TTLs.)
		Recovery: backends.RecoversIn(func(ttl time.Duration) time.Duration { return 2*ttl + time.Second }),
		Dial:     dialRueidis,
	}
}

// rueidisUser is one user.
type rueidisUser struct {
	conn *rueidisConnection
	held held[*rueidisGrant]
}

// rueidisCall is one of the library's two acquire methods.
type rueidisCall func(ctx context.Context, name string) (context.Context, context.CancelFunc, error)

// Acquire waits for the key to be free, in turns of a TTL. Within one, the library retries by itself, also after an
// attempt of unknown outcome.
func (l *rueidisUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	for {
		turn, cancel := context.WithTimeout(ctx, r.TTL)
		g, err := l.acquire(turn, r, l.conn.library.WithContext)
		over := turn.Err() != nil
		cancel()
		if err == nil || !lock.Certain(err) || !over || ctx.Err() != nil {
			return g, err
		}
	}
}

// TryAcquire makes one attempt.
func (l *rueidisUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.acquire(ctx, r, l.conn.library.TryWithContext)
}

func (l *rueidisUser) acquire(ctx context.Context, r lock.Request, call rueidisCall) (lock.Grant, error) {
	if ttl := l.conn.access.TTL; r.TTL != ttl {
		return lock.Grant{}, fmt.Errorf("%w: ttl %s requested, but the library was set up for %s", lock.ErrNotSent,
			r.TTL, ttl)
	}
	lock.At(ctx, "before-lock")
	a := newRueidisGrant(r.TTL)
	life, end := context.WithCancel(a.in(context.WithoutCancel(ctx)))
	unlink := context.AfterFunc(ctx, end)
	done := make(chan error, 1)
	go func() {
		var err error
		a.life, a.cancel, err = call(life, access.Keyspace(l.conn.access.Prefix).Slot(r.Lock))
		done <- err
	}()
	returned, err := await(ctx, done)
	switch {
	case !returned:
		go func() {
			if <-done == nil {
				a.cancel()
			}
		}()
		return lock.Grant{}, fmt.Errorf("rueidislock did not return: %w", ctx.Err())
	case err != nil:
		end()
		return lock.Grant{}, a.refused(ctx, err)
	case !unlink(): // the context ended, and with it the grant
		go func() { a.cancel(); done <- nil }()
		_, _ = await(ctx, done)
		return lock.Grant{}, a.refused(ctx, ctx.Err())
	}
	lock.At(ctx, "lock-done")
	g := a.grant(r.Lock)
	endless := g
	endless.ValidUntil = lock.Endless() // it is renewed until it is given back
	l.held.keep(endless, a)
	return g, nil
}

// await returns the result of a call that may outlive its context; returned is false if the call is still running.
func await(ctx context.Context, done <-chan error) (returned bool, err error) {
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
	}
	t := time.NewTimer(rueidisGrace)
	defer t.Stop()
	select {
	case err := <-done:
		return true, err
	case <-t.C:
		return false, nil
	}
}

// Release cancels the grant and waits for the answer to the library's delete.
func (l *rueidisUser) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-unlock")
	a, err := l.held.handle(g)
	if err != nil {
		return err
	}
	l.held.drop(g)
	close(a.over)
	done := make(chan struct{})
	go func() { a.cancel(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("rueidislock release: %w", ctx.Err())
	}
	if err := a.released(); err != nil {
		return fmt.Errorf("rueidislock release: %w", err)
	}
	lock.At(ctx, "unlock-done")
	return nil
}

// Watch reports each renewal and the loss.
func (l *rueidisUser) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	a, err := l.held.handle(g)
	if err != nil {
		return backends.Unwatched()
	}
	s := backends.HeldGrant{Validity: a.validity, Lost: a.life.Done(), Over: a.over}
	return s.Watch(ctx, g.ValidUntil)
}

// Close frees what the user may still hold.
func (l *rueidisUser) Close() error {
	return l.held.free(l.conn.params.Timeout, func(ctx context.Context, g lock.Grant) error {
		if a, err := l.held.handle(g); err != nil || a.life.Err() != nil {
			return nil //nolint:nilerr // the library gave it up
		}
		return l.Release(ctx, g)
	})
}

// errTakenBack means that an attempt left nothing behind, although no answer said that another user has the lock.
var errTakenBack = fmt.Errorf("%w: the request was withdrawn", lock.ErrRefused)

// errNoAnswer means that the final state of the key is unknown: the library's connection broke, or was too slow.
var errNoAnswer = fmt.Errorf("the delete was not answered: %w", io.ErrUnexpectedEOF)

type rueidisGrantKey struct{}

// rueidisPromise is what a command asks for: to keep the key until a time.
type rueidisPromise struct {
	sent  time.Time
	until time.Time
	clock int64 // the same end as in the command: ms of the client's wall clock
}

// rueidisGrant is one call for a lock, and the grant of its last attempt. Each attempt has its own value.
type rueidisGrant struct {
	ttl    time.Duration
	life   context.Context // ends with the grant
	cancel context.CancelFunc
	over   chan struct{} // closed when the user gives it back

	mu       sync.Mutex
	value    string
	standing bool          // the key may exist with this value
	left     bool          // the key may exist with an earlier attempt's value
	why      error         // why the last attempt certainly left nothing
	granted  bool          // the last attempt was granted
	issued   time.Time     // send time of the granted attempt
	valid    lock.Validity // as last promised
	clock    int64         // the end from which valid was computed
	changed  chan struct{} // closed and replaced at each change of valid
	end      error         // what the delete, or the last renewal, said about the key
}

func newRueidisGrant(ttl time.Duration) *rueidisGrant {
	return &rueidisGrant{ttl: ttl, over: make(chan struct{}), changed: make(chan struct{}), end: errNoAnswer}
}

// in returns a context whose commands belong to the grant.
func (a *rueidisGrant) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, rueidisGrantKey{}, a)
}

// asks is called before SET or a renewal is sent.
func (a *rueidisGrant) asks(value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if value != a.value {
		a.left = a.left || a.standing
		a.value, a.granted = value, false
	}
	a.standing = true
}

// answered is called with the result of SET or of a renewal. settled means that no delete of the value will follow.
func (a *rueidisGrant) answered(p rueidisPromise, resp rueidis.RedisResult) (settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.granted {
		n, err := resp.AsInt64()
		switch {
		case err == nil && n == 1:
			a.promised(p)
		case err == nil:
			a.standing, a.end = false, lock.ErrNotHeld
			return true
		}
		return false
	}
	err := resp.Error()
	_, answer := rueidis.IsRedisErr(err)
	switch {
	case err == nil:
		a.granted, a.issued = true, p.sent
		a.promised(p)
	case rueidis.IsRedisNil(err):
		a.standing, a.why = false, lock.ErrContended
		return true
	case answer:
		a.standing, a.why = false, fmt.Errorf("%w: %w", lock.ErrRefused, err)
	case errors.Is(err, lock.ErrNotSent):
		a.standing, a.why = false, err
	}
	return false
}

// promised records a new end of the validity; the caller holds the lock.
func (a *rueidisGrant) promised(p rueidisPromise) {
	valid := lock.Until(p.until.Add(-backends.Drift(a.ttl)))
	if p.clock == a.clock { // the library repeats its last renewal at every change of the key, including its own
		return
	}
	a.valid, a.clock = valid, p.clock
	close(a.changed)
	a.changed = make(chan struct{})
}

// deleted is called with the result of the delete. settled means that it is not tried again.
func (a *rueidisGrant) deleted(resp rueidis.RedisResult) (settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer, ok := rueidis.IsRedisErr(resp.Error()); ok && answer.IsNoScript() {
		return false
	}
	n, err := resp.AsInt64()
	switch {
	case err != nil:
		a.end = fmt.Errorf("%w: %v", errNoAnswer, err) // its certainty is not the release's
		return true
	case n == 0:
		a.end = lock.ErrNotHeld
	default:
		a.end = nil
	}
	a.standing, a.why = false, errTakenBack
	return true
}

// grant returns the user's grant.
func (a *rueidisGrant) grant(name string) lock.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return lock.Grant{
		Lock: name, Mode: lock.Exclusive, ID: access.Printable(a.value), Token: lock.NoToken, Issued: a.issued,
		ValidUntil: a.valid,
	}
}

// refused returns the error for a call of the library that granted nothing.
func (a *rueidisGrant) refused(ctx context.Context, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	switch {
	case a.standing || a.left:
		// nor is the last attempt's certainty the call's
		return fmt.Errorf("rueidislock, with an attempt of unknown outcome: %v", err)
	case a.why == nil:
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	case ctx.Err() != nil && errors.Is(a.why, errTakenBack):
		return fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
	}
	return fmt.Errorf("%w: %w", a.why, err)
}

// released returns the result of a release.
func (a *rueidisGrant) released() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.end
}

func (a *rueidisGrant) validity() (lock.Validity, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.valid, a.changed
}
