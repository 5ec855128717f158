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

// Library makes a lock.Locker out of a library that returns a handle H for each grant. Return its Locker from a
// Connect. Libraries that wait in the service, keep grants alive, report losses or issue fencing tokens need a
// lock.Locker of their own.
type Library[H any] struct {
	// Obtain makes one attempt, for the name and the TTL of the request. The library must not retry by itself: it
	// would be unknown which of the requests was granted.
	Obtain  func(ctx context.Context, r lock.Request) (H, error)
	Release func(ctx context.Context, handle H) error
	// Renew extends the grant by another TTL from now. Nil if the library cannot.
	Renew func(ctx context.Context, handle H, ttl time.Duration) error
	// Close frees the connection. Nil if there is nothing to free.
	Close func() error
	// Contended is the library's error for a lock that is taken, NotHeld its error for a grant that is gone. After any
	// other error the outcome is unknown.
	Contended, NotHeld error
	// Pause is how long a waiter waits between attempts; 0 means 10 ms.
	Pause time.Duration
}

// Locker returns the lock.Locker of one user.
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
	held    map[string]H // by id of the grant
}

// means translates a library's error into package lock's.
func means(err, library, ours error) error {
	if library != nil && errors.Is(err, library) {
		return fmt.Errorf("%w: %w", ours, err)
	}
	return err
}

// Acquire makes attempts until the lock is granted.
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

// handle returns the library's handle of the grant. A grant that this user does not have is certainly not held.
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

// closing bounds the release of the grants that a user still holds when it is closed.
const closing = time.Second

// Close releases the user's grants and frees its connection.
func (u *libraryUser[H]) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, handle := range u.held {
		_ = u.library.Release(ctx, handle) // ignore an error: the suite checks what is left
		delete(u.held, id)
	}
	if u.library.Close == nil {
		return nil
	}
	return u.library.Close()
}

// renewingUser is a user whose library can extend grants.
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

// Grant returns the lock.Grant for a request that was granted for the TTL it asks for. Sent must be read before
// anything is sent to the service. The holder may rely on the grant until the TTL is over, less the possible clock
// drift. The id must be unique among all grants.
func Grant(r lock.Request, id string, sent time.Time) lock.Grant {
	return lock.Grant{Lock: r.Lock, Mode: r.Mode, ID: id, Issued: sent, ValidUntil: backends.Validity(sent, r.TTL)}
}
