package memory

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// idleTTLs is the number of TTLs for which a watchdog renews a grant after the last call of its user.
const idleTTLs = 3

// watchdog is a user whose grants are renewed in the background, three times per TTL. It stops when the user has made
// no call for idleTTLs: a user that hangs must not keep the lock for as long as its process lives.
type watchdog struct {
	user *locker

	mu     sync.Mutex
	called time.Time // the user's last call
	mute   bool
	kept   map[string]*keptGrant
}

// keptGrant is a grant that a watchdog renews.
type keptGrant struct {
	valid   lock.Validity
	changed chan struct{} // closed when valid changes
	over    chan struct{} // closed when the user releases it
	lost    <-chan struct{}
}

// call records that the user is not hung.
func (w *watchdog) call() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.called = time.Now()
}

// Acquire waits in the store's queue.
func (w *watchdog) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return w.keep(r.TTL)(w.user.Acquire(ctx, r))
}

// TryAcquire makes one attempt.
func (w *watchdog) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return w.keep(r.TTL)(w.user.TryAcquire(ctx, r))
}

// keep returns a function that begins to renew a new grant.
func (w *watchdog) keep(ttl time.Duration) func(lock.Grant, error) (lock.Grant, error) {
	return func(g lock.Grant, err error) (lock.Grant, error) {
		w.call()
		if err != nil {
			return g, err
		}
		w.user.mu.Lock()
		k := &keptGrant{
			valid: g.ValidUntil, changed: make(chan struct{}), over: make(chan struct{}),
			lost: w.user.held[g.Lock+"/"+g.ID].lost,
		}
		w.user.mu.Unlock()
		w.mu.Lock()
		w.kept[g.Lock+"/"+g.ID] = k
		w.mu.Unlock()
		go w.renew(k, g, ttl)
		return g, nil
	}
}

// renew renews a grant until it is released or lost, or its user has been idle for too long.
func (w *watchdog) renew(k *keptGrant, g lock.Grant, ttl time.Duration) {
	const renewals = 3 // in a TTL
	tick := time.NewTicker(ttl / renewals)
	defer tick.Stop()
	for {
		select {
		case <-k.over:
			return
		case <-w.user.open.Done():
			return
		case <-tick.C:
		}
		w.mu.Lock()
		idle, mute := time.Since(w.called), w.mute
		w.mu.Unlock()
		if idle > idleTTLs*ttl && !w.user.store.flaws.renewsForever {
			return
		}
		if mute {
			continue
		}
		next, err := w.user.Renew(context.Background(), g, ttl)
		if err != nil {
			return
		}
		w.mu.Lock()
		k.valid = next.ValidUntil
		close(k.changed)
		k.changed = make(chan struct{})
		w.mu.Unlock()
	}
}

// Release ends the renewals, and releases the lock.
func (w *watchdog) Release(ctx context.Context, g lock.Grant) error {
	w.mu.Lock()
	if k := w.kept[g.Lock+"/"+g.ID]; k != nil {
		close(k.over)
		delete(w.kept, g.Lock+"/"+g.ID)
	}
	w.called = time.Now()
	w.mu.Unlock()
	return w.user.Release(ctx, g)
}

// Check asks the store.
func (w *watchdog) Check(ctx context.Context, g lock.Grant) error {
	w.call()
	return w.user.Check(ctx, g)
}

// Watch reports the renewals of a grant, and its loss.
func (w *watchdog) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	w.mu.Lock()
	k := w.kept[g.Lock+"/"+g.ID]
	w.mu.Unlock()
	if k == nil {
		return backends.Unwatched()
	}
	return backends.HeldGrant{
		Validity: func() (lock.Validity, <-chan struct{}) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return k.valid, k.changed
		},
		Lost: k.lost, Over: k.over,
	}.Watch(ctx, g.ValidUntil)
}

// Mute pauses all renewals, as a cut network would, or resumes them.
func (w *watchdog) Mute(silent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = silent
}

// ClosesBusy marks that Close ends a pending wait.
func (*watchdog) ClosesBusy() {}

// Close frees what the user still holds, ends its pending wait, and stops the renewals.
func (w *watchdog) Close() error { return w.user.Close() }
