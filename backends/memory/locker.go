package memory

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

type connection struct {
	store *store
	// latest has the id of the latest grant of each lock in this process. A lock with freesBeside releases that one
	// by mistake.
	latest   sync.Map
	watchdog bool
}

// Locker returns a locker for one user.
func (c *connection) Locker(context.Context, int) (lock.Locker, error) {
	_, phase := math.Modf(float64(c.store.users.Add(1)) * math.Phi)
	l := &locker{store: c.store, process: c, phase: phase, held: map[string]*holding{}}
	l.open, l.shut = context.WithCancel(context.Background())
	if l.owner = l; c.store.flaws.admitsProcess {
		l.owner = c
	}
	if c.watchdog {
		return &watchdog{user: l, kept: map[string]*keptGrant{}}, nil
	}
	return l, nil
}

// Close has nothing to free: the lockers do.
func (*connection) Close() error { return nil }

type locker struct {
	store   *store
	process *connection
	owner   any       // who may take the user's lock again
	due     time.Time // when the last acquire was due by the user's pace
	phase   float64   // the user's offset in its pace: users in step would be counted in bursts
	stuck   bool      // a grant was lost, and the store is not asked any more
	over    sync.Once
	open    context.Context // ends when the user closes it
	shut    context.CancelFunc

	mu   sync.Mutex
	held map[string]*holding // by lock and id
}

// Acquire waits in the store's queue.
func (l *locker) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	lock.At(ctx, "before-acquire")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.open, cancel)()
	if l.stuck {
		<-ctx.Done()
		return lock.Grant{}, fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, ctx.Err())
	}
	sent := time.Now()
	err := l.pay(ctx)
	var h *holding
	if err == nil {
		h, err = l.store.acquire(ctx, r.Lock, r.TTL, l.owner)
	}
	if err != nil {
		return lock.Grant{}, fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
	}
	return l.granted(ctx, r, h, sent), nil
}

// TryAcquire makes one attempt.
func (l *locker) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	lock.At(ctx, "before-acquire")
	sent := time.Now()
	if err := l.pay(ctx); err != nil {
		return lock.Grant{}, fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
	}
	h := l.store.try(r.Lock, r.TTL, l.owner)
	if h == nil {
		return lock.Grant{}, fmt.Errorf("%w: %s", lock.ErrContended, r.Lock)
	}
	return l.granted(ctx, r, h, sent), nil
}

// granted returns the grant. The store is in this process and has the same clock, so the validity counts from the
// start of the holding. A waiter may have sent its request long before.
func (l *locker) granted(ctx context.Context, r lock.Request, h *holding, issued time.Time) lock.Grant {
	l.store.mu.Lock()
	token, begin := h.token, h.begin
	l.store.mu.Unlock()
	lock.At(ctx, "granted")
	if l.store.flaws.lateFence {
		token = l.store.lateToken(r.Lock)
	}
	lock.At(ctx, "acquire-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: strconv.FormatUint(h.id, 10), Token: lock.Token(token),
		Issued: issued, ValidUntil: backends.Validity(begin, r.TTL),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[g.Lock+"/"+g.ID] = h
	l.process.latest.Store(g.Lock, h.id)
	return g
}

// Release gives the lock back.
func (l *locker) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-free")
	id := l.meant(g)
	over, ok := l.store.release(g.Lock, id)
	if over {
		l.mu.Lock()
		delete(l.held, g.Lock+"/"+g.ID)
		l.mu.Unlock()
	}
	if !ok {
		l.linger(g.Lock)
		l.stuck = l.store.flaws.wedges
		return fmt.Errorf("%w: %s", lock.ErrNotHeld, g.Lock)
	}
	lock.At(ctx, "release-done")
	return nil
}

// linger waits until the lock is free, if the store has that flaw.
func (l *locker) linger(name string) {
	const again = 10 * time.Millisecond
	for l.store.flaws.waitsWhenGone && l.store.look(name).Holder != "none" && l.open.Err() == nil {
		time.Sleep(again)
	}
}

// meant returns the store's id of the grant that a release refers to.
func (l *locker) meant(g lock.Grant) uint64 {
	id := number(g.ID)
	if id == 0 && l.store.flaws.freesBeside {
		if latest, ok := l.process.latest.Load(g.Lock); ok {
			return latest.(uint64)
		}
	}
	return id
}

// number returns the store's id, or 0, which is never a grant.
func number(id string) uint64 {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Renew restarts the TTL from now.
func (l *locker) Renew(_ context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	sent := time.Now()
	if !l.store.renew(g.Lock, number(g.ID), ttl) {
		l.linger(g.Lock)
		return g, fmt.Errorf("%w: %s", lock.ErrLost, g.Lock)
	}
	g.ValidUntil = backends.Validity(sent, ttl)
	return g, nil
}

// Check asks the store.
func (l *locker) Check(_ context.Context, g lock.Grant) error {
	if !l.store.check(g.Lock, number(g.ID)) {
		return fmt.Errorf("%w: %s", lock.ErrNotHeld, g.Lock)
	}
	return nil
}

// Watch reports the loss of a grant.
func (l *locker) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	l.mu.Lock()
	h := l.held[g.Lock+"/"+g.ID]
	l.mu.Unlock()
	if h == nil {
		return backends.Unwatched()
	}
	return backends.HeldGrant{Lost: h.lost}.Watch(ctx, g.ValidUntil)
}

// ClosesBusy marks that Close ends a pending wait.
func (*locker) ClosesBusy() {}

// Close frees what the user still holds and ends its pending wait.
func (l *locker) Close() error {
	if !l.store.flaws.strandsWaiters {
		l.shut()
	}
	l.over.Do(func() { l.store.users.Add(-1) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, h := range l.held {
		for over := false; !over; {
			over, _ = l.store.release(k[:len(k)-len(strconv.FormatUint(h.id, 10))-1], h.id)
		}
	}
	l.held = map[string]*holding{}
	return nil
}
