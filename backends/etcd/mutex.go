package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// mutex is the recipe of etcd's own client library, which runs in the client, not in the server.
func mutex() backends.Lock {
	return leased(backends.Lock{
		Name:      "mutex",
		Doc:       "Mutex and Session of go.etcd.io/etcd/client/v3/concurrency, one session per user; the recipe runs in the client.",
		Offers:    backends.Offers{Try: true, Reentrant: "session", Fair: true},
		Points:    []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		Recovery:  backends.RecoveryBy(lockParams, recovery),
		YesToGone: true,
		Notes: []backends.Note{{
			Measure: "acquire_p50_ms", Least: 80, Most: 130,
			Text: "A median wait of about 100 ms can be etcd's own: a waiter watches the previous key from a " +
				"revision older than the current one, and the server updates such watchers every 100 ms. It needs at " +
				"least two users of a lock; see docs/backends.md.",
		}},
		Dial: dialer(func(u *user) lock.Locker { return &mutexUser{user: u} }),
	})
}

// leased sets what all locks have in common whose keys are under a session's lease.
func leased(l backends.Lock) backends.Lock {
	l.Offers.Blocking, l.Offers.Renewal, l.Offers.LossSignal, l.Offers.Token, l.Offers.Expires = true, "background",
		true, backends.TokenService, true
	l.MinTTL = time.Second
	return l
}

// recovery bounds the time to the next grant after a holder's death. A new leader renews all leases, so a holder who
// died just before an election keeps its lease for a second ttl. An election begins within two election timeouts of
// the last heartbeat. The server looks for expired leases twice a second, and revokes through the log.
func recovery(ttl time.Duration, p LockParams) time.Duration {
	return 2*ttl + 2*p.Election + time.Second
}

// mutexUser is one user of the library's mutex.
type mutexUser struct{ *user }

// Acquire waits in the queue.
func (u *mutexUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return u.acquire(ctx, r, (*concurrency.Mutex).Lock)
}

// TryAcquire makes one attempt.
func (u *mutexUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return u.acquire(ctx, r, (*concurrency.Mutex).TryLock)
}

func (u *mutexUser) acquire(ctx context.Context, r lock.Request,
	how func(*concurrency.Mutex, context.Context) error,
) (lock.Grant, error) {
	s, err := u.exclusively(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	m := concurrency.NewMutex(s.inner, u.conn.keys().at(r.Lock))
	issued := time.Now()
	returned, err := guarded(ctx, s.inner.Ctx(), func(ctx context.Context) error { return how(m, ctx) })
	if err != nil {
		return lock.Grant{}, u.refused(ctx, m, returned, err)
	}
	lock.At(ctx, "lock-done")
	cmp := m.IsOwner()
	revision := cmp.GetCompare().GetCreateRevision()
	// The library's Unlock also says yes if the key had gone with its lease.
	return u.granted(r, issued, lock.Token(revision), &held{
		key: m.Key(), revision: revision, session: s,
		unlock: m.Unlock,
	}), nil
}

// errSessionEnded says why a call was ended although its caller still waited.
var errSessionEnded = errors.New("the session ended before there was an answer")

// guarded runs a call of the library that may outlive its context. It returns soon after the context or the session
// has ended. returned is false if the call is still running.
func guarded(ctx, session context.Context, call func(context.Context) error) (returned bool, err error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(session, cancel)()
	defer func() {
		if errors.Is(err, context.Canceled) && ctx.Err() == nil && session.Err() != nil {
			err = fmt.Errorf("%w: %v", errSessionEnded, err) // the caller did not cancel it
		}
	}()
	done := make(chan error, 1)
	go func() { done <- call(inner) }()
	select {
	case err := <-done:
		return true, err
	case <-inner.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case err := <-done:
		return true, err
	case <-t.C:
		return false, inner.Err()
	}
}

// gaveUp reports whether the user's own time is over. The server knows the deadline, and may report it a moment
// before the user's own timer fires.
func gaveUp(ctx context.Context, err error) bool {
	return ctx.Err() != nil || strings.Contains(err.Error(), context.DeadlineExceeded.Error())
}

// refused classifies an error of the library. If a key may be left behind it gives up the session: under a lease that
// is kept alive, the key would hold the lock for ever.
func (u *mutexUser) refused(ctx context.Context, m *concurrency.Mutex, returned bool, err error) error {
	deleted := returned && m.Key() == "\x00" // the library's mark of a key that it deleted, with an answer
	switch {
	case !returned:
		u.discard()
		return fmt.Errorf("etcd mutex did not return: %w", err)
	case errors.Is(err, concurrency.ErrLocked):
		return fmt.Errorf("%w: %w", lock.ErrContended, err)
	case errors.Is(err, concurrency.ErrSessionExpired), errors.Is(err, rpctypes.ErrLeaseNotFound):
		u.discard()
		return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, err)
	case deleted && gaveUp(ctx, err):
		return fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
	case deleted && errors.Is(err, errSessionEnded):
		u.discard()
		return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, err)
	case deleted: // the wait broke, for example because the watched revision was compacted
		return fmt.Errorf("%w: the wait for the mutex ended, and its key was deleted: %w", lock.ErrRefused, err)
	}
	u.discard()
	return fmt.Errorf("etcd mutex: %w", err)
}
