package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// Library makes a lock.Locker out of a library that hands out a handle H for each grant. A Connect returns its Locker.
// A library that does more, such as to wait in the service, to keep grants alive, to tell of losses or to hand out
// fencing tokens, needs a lock.Locker of its own.
type Library[H any] struct {
	// Obtain makes one attempt, for the name and the TTL of the request. The client must not ask a second time by
	// itself: nobody would know which of the requests was granted.
	Obtain  func(ctx context.Context, r lock.Request) (H, error)
	Release func(ctx context.Context, handle H) error
	// Renew extends the grant by another TTL from now on. Nil: the library cannot.
	Renew func(ctx context.Context, handle H, ttl time.Duration) error
	// Close frees the connection. Nil: there is nothing to free.
	Close func() error
	// Contended is the library's error for a lock that somebody else has, NotHeld that for a grant that is gone. Of any
	// other error nobody knows whether it was done.
	Contended, NotHeld error
	// Pause is how long a waiter waits before it asks again; 0: 10 ms.
	Pause time.Duration
}

// Locker is what one user calls.
func (l Library[H]) Locker() lock.Locker {
	if l.Pause == 0 {
		l.Pause = 10 * time.Millisecond
	}
	u := &libraryUser[H]{library: l, held: map[string]H{}}
	if l.Renew == nil {
		return u
	}
	return &renewingUser[H]{u}
}

type libraryUser[H any] struct {
	library Library[H]
	mu      sync.Mutex
	held    map[string]H // by the id of the grant
}

// means says in the words of package lock what an error of the library means.
func means(err, library, ours error) error {
	if library != nil && errors.Is(err, library) {
		return fmt.Errorf("%w: %w", ours, err)
	}
	return err
}

// Acquire asks until the lock is granted.
func (u *libraryUser[H]) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	poll := backends.Retry{Delay: u.library.Pause, Jitter: 0.5}
	return poll.Poll(ctx, backends.Random(rand.Text(), 0),
		func(ctx context.Context) (lock.Grant, error) { return u.TryAcquire(ctx, r) })
}

// TryAcquire makes one attempt.
func (u *libraryUser[H]) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	sent := time.Now()
	handle, err := u.library.Obtain(ctx, r)
	if err != nil {
		return lock.Grant{}, means(err, u.library.Contended, lock.ErrContended)
	}
	g := Grant(r, rand.Text(), sent)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held[g.ID] = handle
	return g, nil
}

// handle is what the library handed out for the grant; one that this user does not have is certainly not held by it.
func (u *libraryUser[H]) handle(g lock.Grant) (H, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	handle, ok := u.held[g.ID]
	if !ok {
		return handle, fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	return handle, nil
}

func (u *libraryUser[H]) drop(g lock.Grant) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.held, g.ID)
}

// Release gives the grant back.
func (u *libraryUser[H]) Release(ctx context.Context, g lock.Grant) error {
	handle, err := u.handle(g)
	if err != nil {
		return err
	}
	err = means(u.library.Release(ctx, handle), u.library.NotHeld, lock.ErrNotHeld)
	if err == nil || errors.Is(err, lock.ErrNotHeld) {
		u.drop(g)
	}
	return err
}

// closing bounds the release of what a user holds when it is closed.
const closing = time.Second

// Close gives back what the user holds, and frees its connection.
func (u *libraryUser[H]) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, handle := range u.held {
		_ = u.library.Release(ctx, handle) // what is left ends by itself, or does not: the suite asks
		delete(u.held, id)
	}
	if u.library.Close == nil {
		return nil
	}
	return u.library.Close()
}

// renewingUser is one whose library extends grants.
type renewingUser[H any] struct{ *libraryUser[H] }

// Renew extends the grant.
func (u *renewingUser[H]) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	handle, err := u.handle(g)
	if err != nil {
		return g, err
	}
	sent := time.Now()
	if err := u.library.Renew(ctx, handle, ttl); err != nil {
		return g, means(means(err, u.library.NotHeld, lock.ErrNotHeld), u.library.Contended, lock.ErrNotHeld)
	}
	g.ValidUntil = backends.Validity(sent, ttl)
	return g, nil
}

// Grant is what a Locker returns for a request that was sent at that time, before anything went to the service, and
// granted for the TTL that it asks for. Its holder may believe in it until the TTL is over, less what clocks may drift
// apart. id tells it from all other grants.
func Grant(r lock.Request, id string, sent time.Time) lock.Grant {
	return lock.Grant{Lock: r.Lock, Mode: r.Mode, ID: id, Issued: sent, ValidUntil: backends.Validity(sent, r.TTL)}
}
