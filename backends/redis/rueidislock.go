package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

const rueidisName = "rueidislock"

// rueidisGrace is how long a call of the library may go on after its context ended: it deletes what it may have left behind.
const rueidisGrace = 500 * time.Millisecond

// rueidisLock is the library rueidislock on one client, so its KeyMajority is 1. All users of a process share one of its Lockers, which wait
// for the server's message that the key has changed (client-side caching) and renew every half TTL.
//
// A wait is begun anew after a TTL, because the library can leave a waiter deaf for as long as its context lives: after an attempt that
// failed without an answer (a server that is back a second after it was killed does not wake it), and, less than once in a
// thousand contended grants, for no reason but a race within the library.
//
// Four settings differ from the library's defaults. Its client repeats nothing by itself (DisableRetry): a SET NX that is
// repeated after its reply was lost finds its own key and calls it another's. The server does not tell a client of its own changes
// (NoLoopTracking, as in the library's own example; from Redis 7.0.5): by default each renewal is answered with the news
// of itself, and renewed again at once, 13,000 times a second on a machine of two cores. An attempt may take the
// scenario's timeout rather than 20 ms. And the context that a grant hangs on has no deadline, because the library would shorten the
// key's life to it.
//
// What the adapter adds, it reads from the commands that the library hands to its client, and from their answers: the send time; the expiry,
// which is a time of the client's wall clock (PXAT), so that a grant is valid for what was left until then when the
// command was sent; each renewal; and what became of the key in the end, since the library's release says nothing. A loss is told when the
// library cancels the context of the grant, which may be half a TTL after the key expired.
func rueidisLock() backends.Lock {
	return backends.Lock{
		Name: rueidisName,
		Doc: "The library github.com/redis/rueidis/rueidislock v1.0.79 on one client: waits for the server's invalidation messages, " +
			"renews by itself, expires keys by the client's wall clock.",
		Offers: backends.Offers{
			Blocking: true, Try: true, Renewal: "background", LossSignal: true, Token: backends.TokenNone, Reentrant: "no", Expires: true, WallClock: true,
		},
		Points: []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		MinTTL: 100 * time.Millisecond,
		// A deaf waiter asks again when its turn is over. (A holder that fell silent believes in its last renewal for up to a TTL and a half.)
		Recovery: func(ttl time.Duration) time.Duration { return 2*ttl + time.Second },
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

// Acquire waits for the key to be free, in turns of a TTL. Within one, the library asks again by itself, also after an attempt of unknown
// outcome.
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
		return lock.Grant{}, fmt.Errorf("%w: ttl %s asked for, but the library was set up for %s", lock.ErrNotSent, r.TTL, ttl)
	}
	lock.At(ctx, "before-lock")
	a := newRueidisGrant(r.TTL)
	life, end := context.WithCancel(a.in(context.WithoutCancel(ctx)))
	unlink := context.AfterFunc(ctx, end)
	done := make(chan error, 1)
	go func() {
		var err error
		a.life, a.cancel, err = call(life, rueidisTag(r.Lock))
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
	s := backends.Standing{Validity: a.validity, Lost: a.life.Done(), Over: a.over}
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
