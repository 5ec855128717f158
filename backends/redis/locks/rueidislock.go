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

// rueidisGrace is how long a call of the library may go on after its context ended: it deletes what it may have left
// behind.
const rueidisGrace = 500 * time.Millisecond

// rueidisLock is the library rueidislock on one client, so its KeyMajority is 1. All users of a process share one of
// its Lockers, which wait for the server's message that the key has changed (client-side caching) and renew every
// half TTL.
//
// The library can leave a waiter asleep for as long as its context lives, so a wait is begun anew after a TTL. It
// happens after an attempt that failed without an answer: a server that is back a second after it was killed does
// not wake it. Less than once in a thousand contended grants it happens by a race within the library.
//
// Four settings differ from the library's defaults:
//   - Its client repeats nothing by itself (DisableRetry): a SET NX that is repeated after its reply was lost
//     finds its own key and calls it another's.
//   - The server does not tell a client of its own changes (NoLoopTracking, as in the library's own example; from
//     Redis 7.0.5). By default each renewal comes back as a change and is renewed again at once, 13,000 times a
//     second on two cores.
//   - An attempt may take the scenario's timeout instead of 20 ms.
//   - The context of a grant has no deadline, because the library would shorten the key's life to it.
//
// The adapter reads what it needs from the commands that the library hands to its client, and from their answers:
//   - the send time, and each renewal
//   - the expiry, a time of the client's wall clock (PXAT): a grant is valid for what was left until then when
//     the command was sent
//   - what became of the key in the end, since the library's release returns nothing
//
// A loss is told when the library cancels the context of the grant, which may be half a TTL after the key expired.
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
		// A deaf waiter asks again when its turn is over. (A holder that fell silent believes in its last renewal for
		// up to a TTL and a half.)
		Recovery: backends.RecoversIn(func(ttl time.Duration) time.Duration { return 2*ttl + time.Second }),
		Dial:     dialRueidis,
	}
}

// rueidisUser is one user.
type rueidisUser struct {
	conn *rueidisConnection
	held held[*rueidisGrant]
}

// rueidisCall is either way to ask.
type rueidisCall func(ctx context.Context, name string) (context.Context, context.CancelFunc, error)

// Acquire waits for the key to be free, in turns of a TTL. Within one, the library asks again by itself, also after an
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
		return lock.Grant{}, fmt.Errorf("%w: ttl %s asked for, but the library was set up for %s", lock.ErrNotSent,
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

// await returns what came of a call that may outlast its context; returned is false when it is still running.
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

// errTakenBack says that an attempt left nothing behind, although nobody else was said to have the lock.
var errTakenBack = fmt.Errorf("%w: what was asked for was taken back", lock.ErrRefused)

// errNoAnswer says that it is unknown whether the key was deleted: the library's connection broke, or was too slow.
var errNoAnswer = fmt.Errorf("the delete was not answered: %w", io.ErrUnexpectedEOF)

type rueidisGrantKey struct{}

// rueidisPromise is what a command asks for: to keep the key until a time.
type rueidisPromise struct {
	sent  time.Time
	until time.Time
	clock int64 // the same end, as the command names it: ms of the client's wall clock
}

// rueidisGrant is one call for a lock, whose attempts have a value each, and the grant that came of the last one.
type rueidisGrant struct {
	ttl    time.Duration
	life   context.Context // ends with the grant
	cancel context.CancelFunc
	over   chan struct{} // closed when the user gives it back

	mu       sync.Mutex
	value    string
	standing bool          // the key of this value may be there
	left     bool          // that of an earlier attempt may
	why      error         // why there is certainly nothing of the last attempt
	granted  bool          // the last attempt was
	issued   time.Time     // send time of what was granted
	valid    lock.Validity // as last promised
	clock    int64         // what valid was computed from
	changed  chan struct{} // closed and replaced at each change of valid
	end      error         // what the delete, or the last renewal, said of the key
}

func newRueidisGrant(ttl time.Duration) *rueidisGrant {
	return &rueidisGrant{ttl: ttl, over: make(chan struct{}), changed: make(chan struct{}), end: errNoAnswer}
}

// in returns a context whose commands are the grant's.
func (a *rueidisGrant) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, rueidisGrantKey{}, a)
}

// asks is told before SET or a renewal is sent.
func (a *rueidisGrant) asks(value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if value != a.value {
		a.left = a.left || a.standing
		a.value, a.granted = value, false
	}
	a.standing = true
}

// answered is told what came of SET or of a renewal; settled says that no delete of the value will follow.
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

// promised notes a new end of the validity; the caller holds the lock.
func (a *rueidisGrant) promised(p rueidisPromise) {
	valid := lock.Until(p.until.Add(-backends.Drift(a.ttl)))
	if p.clock == a.clock { // the library repeats its last renewal whenever the key has changed, even if by itself
		return
	}
	a.valid, a.clock = valid, p.clock
	close(a.changed)
	a.changed = make(chan struct{})
}

// deleted is told what came of the delete; settled says that it is not tried again.
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

// grant returns what the user gets.
func (a *rueidisGrant) grant(name string) lock.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return lock.Grant{
		Lock: name, Mode: lock.Exclusive, ID: access.Printable(a.value), Token: lock.NoToken, Issued: a.issued,
		ValidUntil: a.valid,
	}
}

// refused says what it means that the library granted nothing.
func (a *rueidisGrant) refused(ctx context.Context, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	switch {
	case a.standing || a.left:
		// nor is the last one's certainty the call's
		return fmt.Errorf("rueidislock, with an attempt of unknown outcome: %v", err)
	case a.why == nil:
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	case ctx.Err() != nil && errors.Is(a.why, errTakenBack):
		return fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
	}
	return fmt.Errorf("%w: %w", a.why, err)
}

// released says what became of the key.
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
