// Command toy is a lock among the users of one process, for tests. Its first argument names the rule it breaks.
package main

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"

	lockquake "github.com/lockquake/lockquake/clients/go"
)

var (
	mu    sync.Mutex
	table = map[string]chan struct{}{} // full while the lock is held
	last  uint64
	kind  = append(os.Args, "")[1]
)

type toy struct{ access *lockquake.Access }

func main() {
	points := []string{"taken"}
	if kind == "no-points" {
		points = []string{"no-such-point"}
	}
	if kind == "interface" {
		lockquake.Main("toy", func(a *lockquake.Access) (lockquake.Lock, error) { return toy{a}, nil }, points...)
	}
	if kind == "loses" {
		lockquake.Main("toy", func(a *lockquake.Access) (losing, error) { return losing{toy{a}}, nil }, points...)
	}
	if kind == "renews" {
		lockquake.Main("toy", func(a *lockquake.Access) (renewing, error) { return renewing{toy{a}}, nil }, points...)
	}
	if kind == "reenters" || kind == "forgets" {
		lockquake.Main("toy", func(a *lockquake.Access) (*reentrant, error) { return &reentrant{toy: toy{a}}, nil }, points...)
	}
	if kind == "permits" || kind == "one-more" {
		lockquake.Main("toy", func(a *lockquake.Access) (counting, error) { return counting{toy{a}}, nil }, points...)
	}
	if kind == "bounded" || kind == "no-bound" {
		lockquake.Main("toy", func(a *lockquake.Access) (bounded, error) { return bounded{renewing{toy{a}}}, nil }, points...)
	}
	lockquake.Main("toy", func(a *lockquake.Access) (toy, error) { return toy{a}, nil }, points...)
}

func (t toy) of(name string) chan struct{} {
	mu.Lock()
	defer mu.Unlock()
	if table[name] == nil {
		n := t.access.Permits
		if kind == "one-more" {
			n++
		}
		table[name] = make(chan struct{}, n)
	}
	return table[name]
}

// Acquire waits until the lock is free.
func (t toy) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	sent := lockquake.Now()
	if kind != "never-excludes" {
		if kind == "deaf" {
			ctx = context.Background() // never ends
		}
		select {
		case t.of(name) <- struct{}{}:
		case <-ctx.Done():
			return lockquake.Grant{}, lockquake.ErrContended
		}
	}
	lockquake.At(ctx, "taken")
	mu.Lock()
	defer mu.Unlock()
	last++
	g := t.access.Grant(strconv.FormatUint(last, 10), sent)
	g.Token, g.Handle = last, name
	switch kind {
	case "no-valid":
		g.Valid = 0
	case "late-valid":
		g.Valid += int64(t.access.TTL())
	}
	return g, nil
}

// Release frees the lock for the next waiter.
func (t toy) Release(_ context.Context, g lockquake.Grant) error {
	if kind == "never-excludes" {
		return nil
	}
	select {
	case <-t.of(g.Handle.(string)):
		return nil
	default:
		return lockquake.ErrNotHeld
	}
}

// reentrant is a lock that its holder can take again. If it forgets, the first release frees it.
type reentrant struct {
	toy
	entries int
}

// Reenter counts.
func (r *reentrant) Reenter(_ context.Context, g lockquake.Grant) (lockquake.Grant, error) {
	r.entries++
	g.Sent = lockquake.Now()
	g.Valid = r.access.Valid(g.Sent)
	return g, nil
}

// Release frees the lock if it was taken once.
func (r *reentrant) Release(ctx context.Context, g lockquake.Grant) error {
	if r.entries > 0 {
		r.entries--
		if kind != "forgets" {
			return nil
		}
	}
	return r.toy.Release(ctx, g)
}

// counting is a lock that several users can hold.
type counting struct{ toy }

// HasPermits says so.
func (counting) HasPermits() {}

// losing reports each grant as lost at once.
type losing struct{ toy }

// OnLost reports the loss at once.
func (losing) OnLost(_ lockquake.Grant, lost func()) { lost() }

// renewing is a library that renews by itself and reports it.
type renewing struct{ toy }

// OnRenewed reports a renewal.
func (r renewing) OnRenewed(_ lockquake.Grant, renewed func(int64)) {
	renewed(r.access.Valid(lockquake.Now()))
}

// Renew always succeeds.
func (t toy) Renew(context.Context, lockquake.Grant) (int64, error) {
	return t.access.Valid(lockquake.Now()), nil
}

// Check looks whether the lock is held at all, by any user.
func (t toy) Check(_ context.Context, g lockquake.Grant) error {
	if kind != "never-excludes" && len(t.of(g.Handle.(string))) == 0 {
		return lockquake.ErrNotHeld
	}
	return nil
}

// bounded is a library that renews by itself, and stops for a user that hangs.
type bounded struct{ renewing }

// Hung is the bound for such a user.
func (bounded) Hung() (ttls int, plus time.Duration) {
	if kind == "no-bound" {
		return 0, 0
	}
	return 3, 500 * time.Millisecond
}
