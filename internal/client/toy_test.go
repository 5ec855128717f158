package client

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lockquake/lockquake/backends"
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
	gone      bool // renewals say that the grant is lost
	onRelease func()
	woken     int64 // what it tells of notifications; 0: nothing
}

func newToy() *toy {
	t := &toy{holder: map[string]string{}, lose: map[string]chan struct{}{}}
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

// heard is a toy that tells how often it woke somebody.
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
	issued := time.Now()
	lock.At(ctx, "toy-sent")
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
	for p.t.holder[r.Lock] != "" {
		if ctx.Err() != nil {
			return lock.Grant{}, fmt.Errorf("%w: %w", lock.ErrContended, ctx.Err())
		}
		p.t.change.Wait()
	}
	p.t.token++
	id := fmt.Sprintf("%d-%d", p.user, p.t.token)
	p.t.holder[r.Lock] = id
	p.t.lose[id] = make(chan struct{})
	return lock.Grant{Lock: r.Lock, Mode: r.Mode, ID: id, Token: p.t.token, Issued: issued, ValidUntil: lock.Until(issued.Add(r.TTL))}, nil
}

func (p *plain) Release(_ context.Context, g lock.Grant) error {
	if p.t.onRelease != nil {
		p.t.onRelease()
	}
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.t.holder[g.Lock] != g.ID {
		return lock.ErrNotHeld
	}
	delete(p.t.holder, g.Lock)
	p.t.change.Broadcast()
	return nil
}

func (p *plain) Close() error { return nil }

// talking tells of losses, can be extended and asked.
type talking struct{ *plain }

func (p *talking) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	out := make(chan lock.Change)
	p.t.mu.Lock()
	lost := p.t.lose[g.ID]
	p.t.mu.Unlock()
	go func() {
		defer close(out)
		select {
		case <-lost:
			select {
			case out <- lock.Change{At: time.Now(), Lost: true}:
			case <-ctx.Done():
			}
		case <-ctx.Done():
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
	g.ValidUntil = lock.Until(sent.Add(ttl))
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

// suicide is a workload whose process is killed by itself the moment its user goes on after an acquire.
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
