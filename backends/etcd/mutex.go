package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// grace is how long a cancelled wait may clean up before its caller stops waiting for it.
const grace = 500 * time.Millisecond

// mutex is the recipe of etcd's own client library, which runs in the client, not in the server.
func mutex() backends.Lock {
	return backends.Lock{
		Name: "mutex",
		Doc:  "Mutex and Session of go.etcd.io/etcd/client/v3/concurrency, one session a user; the recipe runs in the client.",
		Offers: backends.Offers{
			Blocking: true, Try: true, Renewal: "background", LossSignal: true, Token: backends.TokenService,
			Reentrant: "session", Fair: true, Expires: true,
		},
		Points: []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		MinTTL: time.Second,
		// A new leader renews all leases, so that a holder who died just before an election keeps its lease for a second
		// ttl. The server looks for expired leases twice a second, and revokes through the log.
		Recovery: func(ttl time.Duration) time.Duration { return 2*ttl + 3*time.Second },
		Dial:     dial,
	}
}

// prefix is where a lock's queue of keys is kept; the library adds "/" and the lease's number.
func prefix(name string) string { return "lockquake/" + name }

// locker is one user.
type locker struct {
	conn    *connection
	session *session
	held    map[string]*held // by id
}

// held is a grant that was neither released nor given up.
type held struct {
	mutex   *concurrency.Mutex
	session *session
	over    chan struct{} // closed when the user gives it back
}

// live returns the user's session, a new one where the old one is of no use any more.
func (l *locker) live(ctx context.Context) (*session, error) {
	if l.session != nil && l.session.usable() {
		return l.session, nil
	}
	l.discard()
	s, err := l.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	l.session = s
	return s, nil
}

// discard gives the session up. Its keep-alive ends at once; the revocation is tried in the background, because the
// service may be out of reach, and the lease ends without it.
func (l *locker) discard() {
	s := l.session
	l.session = nil
	if s == nil {
		return
	}
	s.inner.Orphan()
	go func() { _ = s.end(context.WithoutCancel(l.conn.client.Ctx())) }()
}

// Acquire waits in the queue.
func (l *locker) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.acquire(ctx, r, (*concurrency.Mutex).Lock)
}

// TryAcquire makes one attempt.
func (l *locker) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.acquire(ctx, r, (*concurrency.Mutex).TryLock)
}

func (l *locker) acquire(ctx context.Context, r lock.Request, how func(*concurrency.Mutex, context.Context) error) (lock.Grant, error) {
	if r.TTL != l.conn.access.TTL {
		return lock.Grant{}, fmt.Errorf("%w: ttl %s asked for, but the session has %s", lock.ErrNotSent, r.TTL, l.conn.access.TTL)
	}
	s, err := l.live(ctx)
	if err != nil {
		return lock.Grant{}, fmt.Errorf("%w, there is no session: %w", lock.ErrNotSent, err)
	}
	lock.At(ctx, "before-lock")
	if err := ctx.Err(); err != nil {
		return lock.Grant{}, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	m := concurrency.NewMutex(s.inner, prefix(r.Lock))
	issued := time.Now()
	returned, err := guarded(ctx, s, func(ctx context.Context) error { return how(m, ctx) })
	if err != nil {
		return lock.Grant{}, l.refused(m, returned, err)
	}
	lock.At(ctx, "lock-done")
	cmp := m.IsOwner()
	revision := cmp.GetCompare().GetCreateRevision()
	valid, _ := s.validity()
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: grantID(m.Key(), revision), Token: lock.Token(revision),
		Issued: issued, ValidUntil: valid,
	}
	l.held[g.ID] = &held{mutex: m, session: s, over: make(chan struct{})}
	return g, nil
}

// grantID names a grant: the key alone is the same for all grants of one session.
func grantID(key string, revision int64) string { return fmt.Sprintf("%s@%d", key, revision) }

// guarded runs a call of the library that may outlast its context, and returns soon after the context or the session
// ended; returned is false when the call is still running.
func guarded(ctx context.Context, s *session, call func(context.Context) error) (returned bool, err error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.inner.Ctx(), cancel)()
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

// refused says what an error of the library means and gives up the session where something may be left behind: a key
// under a lease that is kept alive would hold the lock for ever.
func (l *locker) refused(m *concurrency.Mutex, returned bool, err error) error {
	switch {
	case !returned:
		l.discard()
		return fmt.Errorf("etcd mutex did not return: %w", err)
	case errors.Is(err, concurrency.ErrLocked):
		return fmt.Errorf("%w: %w", lock.ErrContended, err)
	case errors.Is(err, concurrency.ErrSessionExpired), errors.Is(err, rpctypes.ErrLeaseNotFound):
		l.discard()
		return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, err)
	case m.Key() == "\x00": // the library's mark of a key that it deleted, with an answer
		return fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
	}
	l.discard()
	return fmt.Errorf("etcd mutex: %w", err)
}

// Release deletes the key. The library says yes also when the key had gone with its lease.
func (l *locker) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-unlock")
	h, ok := l.held[g.ID]
	if !ok {
		return fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	delete(l.held, g.ID)
	close(h.over)
	if err := h.mutex.Unlock(ctx); err != nil {
		if h.session == l.session {
			l.discard()
		}
		return fmt.Errorf("etcd unlock: %w", err)
	}
	lock.At(ctx, "unlock-done")
	return nil
}

// Check reads the key.
func (l *locker) Check(ctx context.Context, g lock.Grant) error {
	h, ok := l.held[g.ID]
	if !ok {
		return fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	kv := boundedKV{KV: l.conn.client.KV, timeout: l.conn.params.Timeout}
	key := h.mutex.Key()
	resp, err := kv.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("get %s: %w", key, err)
	}
	if len(resp.Kvs) == 0 || lock.Token(resp.Kvs[0].CreateRevision) != g.Token {
		return fmt.Errorf("%w: %s is gone", lock.ErrNotHeld, key)
	}
	return nil
}

// Watch reports each answered keep-alive and the end of the session.
func (l *locker) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	out := make(chan lock.Change, 1)
	h, ok := l.held[g.ID]
	if !ok {
		close(out)
		return out
	}
	go h.watch(ctx, g.ValidUntil, out)
	return out
}

func (h *held) watch(ctx context.Context, known lock.Validity, out chan<- lock.Change) {
	defer close(out)
	for {
		valid, changed := h.session.validity()
		c := lock.Change{At: time.Now(), ValidUntil: valid}
		if valid == known || valid == lock.Unknown() {
			select {
			case <-ctx.Done():
				return
			case <-h.over:
				return
			case <-changed:
				continue
			case <-h.session.inner.Done():
				c = lock.Change{At: time.Now(), Lost: true}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-h.over: // what comes after one's own release is no news
			return
		case out <- c:
		}
		if c.Lost {
			return
		}
		known = valid
	}
}

// Close ends the session, and with it whatever the user held.
func (l *locker) Close() error {
	for id, h := range l.held {
		delete(l.held, id)
		close(h.over)
	}
	s := l.session
	l.session = nil
	if s == nil {
		return nil
	}
	return s.end(context.WithoutCancel(l.conn.client.Ctx()))
}
