package client

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
)

// toy is a lock service in this process that does what a test wants.
type toy struct {
	mu     sync.Mutex
	holder map[string]string
	token  lock.Token
	lose   map[string]chan struct{} // by grant id
	change *sync.Cond

	silent    bool // lockers are neither Watcher nor Renewer
	deaf      bool // an acquire never returns, not even when its context ends
	renewals  int
	reenters  bool // a holder can take its lock again
	again     map[string]int
	gone      bool // renewals report that the grant is lost
	onRelease func()
	woken     int64 // the notifications that it reports; 0: it reports none

	slow  time.Duration                     // the delay of its answers
	valid func(end time.Time) lock.Validity // of its grants; nil: the end that they appear to have
	quiet bool                              // its grants do not say when they were issued
	calls []call
	news  chan lock.Change // what a Watcher reports beside the loss; nil: nothing
}

// call is one call of the service.
type call struct {
	began, answered time.Time
	given           lock.Grant // what it was called with
	grant           lock.Grant // what it returned
}

// called records a call when it is answered. The caller holds the lock.
func (t *toy) called(began time.Time, given lock.Grant, grant *lock.Grant) {
	time.Sleep(t.slow)
	t.calls = append(t.calls, call{began: began, answered: time.Now(), given: given, grant: *grant})
}

func newToy() *toy {
	t := &toy{again: map[string]int{}, holder: map[string]string{}, lose: map[string]chan struct{}{}}
	t.change = sync.NewCond(&t.mu)
	return t
}

func (t *toy) backend() backends.Backend {
	return backends.Backend{Name: "toy", Locks: []backends.Lock{{
		Name: "plain",
		Dial: func(context.Context, backends.Access) (backends.Connection, error) {
			if t.woken != 0 {
				return &heard{t, t.woken}, nil
			}
			return t, nil
		},
	}}}
}

func (t *toy) Close() error { return nil }

// heard is a toy that reports how often it woke a user.
type heard struct {
	*toy
	count int64
}

func (h *heard) Notifications() int64 { return h.count }

func (t *toy) Locker(_ context.Context, user int) (lock.Locker, error) {
	p := &plain{t: t, user: user}
	if t.silent {
		return p, nil
	}
	return &talking{p}, nil
}

// loseAll tells every holder that its grant is gone, and frees the locks.
func (t *toy) loseAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, id := range t.holder {
		close(t.lose[id])
		delete(t.holder, name)
	}
	t.change.Broadcast()
}

type plain struct {
	t    *toy
	user int
}

func (p *plain) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	began := time.Now()
	issued := began
	lock.At(ctx, "toy-sent")
	lock.Attempt(ctx)
	if p.t.deaf {
		select {}
	}
	defer context.AfterFunc(ctx, func() {
		p.t.mu.Lock()
		defer p.t.mu.Unlock()
		p.t.change.Broadcast()
	})()
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.t.reenters && strings.HasPrefix(p.t.holder[r.Lock], fmt.Sprintf("%d-", p.user)) {
		p.t.again[r.Lock]++
		return lock.Grant{Lock: r.Lock, ID: p.t.holder[r.Lock], ValidUntil: p.t.until(issued.Add(r.TTL))}, nil
	}
	for p.t.holder[r.Lock] != "" || ctx.Err() != nil {
		if ctx.Err() != nil {
			return lock.Grant{}, fmt.Errorf("%w: %w", lock.ErrContended, ctx.Err())
		}
		p.t.change.Wait()
	}
	p.t.token++
	id := fmt.Sprintf("%d-%d", p.user, p.t.token)
	p.t.holder[r.Lock] = id
	p.t.lose[id] = make(chan struct{})
	g := lock.Grant{Lock: r.Lock, Mode: r.Mode, ID: id, Token: p.t.token, Issued: issued, ValidUntil: p.t.until(issued.Add(r.TTL))}
	if p.t.quiet {
		g.Issued = time.Time{}
	}
	p.t.called(began, lock.Grant{}, &g)
	return g, nil
}

// until returns the validity of a grant with this end.
func (t *toy) until(end time.Time) lock.Validity {
	if t.valid != nil {
		return t.valid(end)
	}
	return lock.Until(end)
}

// awaitGrant waits until the service has granted a lock.
func (t *toy) awaitGrant(test *testing.T) {
	test.Helper()
	wait.Until(test, patience, "a grant", func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.token > 0
	})
}

// over returns the validity of a grant that is over when it comes.
func over(time.Time) lock.Validity { return lock.Until(time.Now().Add(-time.Second)) }

func (p *plain) Release(_ context.Context, g lock.Grant) error {
	began := time.Now()
	if p.t.onRelease != nil {
		p.t.onRelease()
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.t.holder[g.Lock] != g.ID {
		return lock.ErrNotHeld
	}
	if p.t.again[g.Lock] > 0 {
		p.t.again[g.Lock]--
		return nil
	}
	delete(p.t.holder, g.Lock)
	p.t.change.Broadcast()
	p.t.called(began, g, &lock.Grant{})
	return nil
}

func (p *plain) Close() error { return nil }

// talking reports losses, and can be renewed and checked.
type talking struct{ *plain }

func (p *talking) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	out := make(chan lock.Change)
	p.t.mu.Lock()
	lost := p.t.lose[g.ID]
	p.t.mu.Unlock()
	go func() {
		defer close(out)
		for {
			var c lock.Change
			select {
			case c = <-p.t.news:
			case <-lost:
				c, lost = lock.Change{At: time.Now(), Lost: true}, nil
			case <-ctx.Done():
				return
			}
			select {
			case out <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func (p *talking) Renew(_ context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	sent := time.Now()
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.t.renewals++
	if p.t.gone || p.t.holder[g.Lock] != g.ID {
		return lock.Grant{}, lock.ErrNotHeld
	}
	was := g
	g.ValidUntil = p.t.until(sent.Add(ttl))
	p.t.called(sent, was, &g)
	return g, nil
}

func (p *talking) Check(_ context.Context, g lock.Grant) error {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.t.holder[g.Lock] != g.ID {
		return lock.ErrNotHeld
	}
	return nil
}

// suicide is a workload that kills its own process as soon as its user goes on after an acquire.
var suicide = workloads.Kind{Name: "suicide", New: func(func(any) error) (workloads.Workload, error) { return dying{}, nil }}

type dying struct{}

func (dying) Locks(int) int       { return 1 }
func (dying) NeedsResource() bool { return false }
func (dying) Run(ctx context.Context, u workloads.User) error {
	if _, err := u.Acquire(ctx, 0, time.Time{}); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}
