package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// AcquireRelease is the workload that takes a lock, keeps it for a while, and releases it. It measures how fast a
// lock is.
type AcquireRelease struct {
	// Count is the number of locks; each cycle takes one of them at random.
	Count int `yaml:"locks" json:"locks"`
	// OwnLocks gives each user of the run its own lock, so that no user waits for another.
	OwnLocks bool `yaml:"own_locks" json:"own_locks"`
	// Hold is how long each grant is kept.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Think is how long a user waits between a release and its next acquire; closed loop only.
	Think time.Duration `yaml:"think" json:"think"`
	// Shared is the share of acquires that ask for shared mode, from 0 to 1, drawn at random.
	Shared float64 `yaml:"shared" json:"shared"`
	// Rate makes the loop open: acquires begin at this rate per second, over all users of the run, whether or not the
	// service keeps up. 0 is a closed loop: each user begins a cycle when the previous one is done.
	Rate float64 `yaml:"rate" json:"rate"`
	// Arrivals is the distribution of those moments: "poisson" (independent) or "uniform" (evenly spaced).
	Arrivals string `yaml:"arrivals" json:"arrivals"`

	pace pace
}

// maxRate is the highest useful rate of one run in arrivals a second.
const maxRate = 1e6

var acquireRelease = Kind{
	Name: "acquire-release",
	Doc:  "Acquire a lock, hold it, release it; in a closed loop or, with a rate, in an open one.",
	New: func(decode func(into any) error) (Workload, error) {
		w := &AcquireRelease{Count: 1, Arrivals: Poisson}
		if err := decode(w); err != nil {
			return nil, err
		}
		if err := w.check(); err != nil {
			return nil, err
		}
		w.pace.rate, w.pace.uniform = w.Rate, w.Arrivals == Uniform
		return w, nil
	},
}

func (w *AcquireRelease) check() error {
	if err := checkLocks(w.Count); err != nil {
		return err
	}
	if err := checkTimes(w.Hold, w.Think); err != nil {
		return err
	}
	switch {
	case !(w.Shared >= 0 && w.Shared <= 1):
		return fmt.Errorf("shared is %v: want the share of acquires in shared mode, from 0 to 1", w.Shared)
	case w.OwnLocks && w.Count != 1:
		return fmt.Errorf("locks is %d with own_locks: omit locks, each user has its own lock", w.Count)
	case !(w.Rate >= 0 && w.Rate <= maxRate):
		return fmt.Errorf("rate is %v: want arrivals per second above 0 and at most %.0f, or 0 for a closed loop", w.Rate,
			maxRate)
	case w.Arrivals != Poisson && w.Arrivals != Uniform:
		return fmt.Errorf("arrivals is %q: want %s or %s", w.Arrivals, Poisson, Uniform)
	case w.Rate > 0 && w.Think > 0:
		return fmt.Errorf("think is %v with a rate of %v: in an open loop only the rate determines when cycles begin; omit one of them", w.Think, w.Rate)
	}
	return nil
}

// Locks returns the number of locks.
func (w *AcquireRelease) Locks(users int) int {
	if w.OwnLocks {
		return max(users, 1)
	}
	return w.Count
}

// NeedsResource returns false: nothing is read or written.
func (w *AcquireRelease) NeedsResource() bool { return false }

// Unstarted returns the number of arrivals up to end that never got a user.
func (w *AcquireRelease) Unstarted(end int64) int64 { return w.pace.unstarted(end) }

// Run takes and releases locks until ctx ends.
func (w *AcquireRelease) Run(ctx context.Context, u User) error {
	if w.Rate > 0 {
		return w.open(ctx, u)
	}
	return closed(ctx, w.Think, u, func() error {
		h, err := w.acquire(ctx, u, time.Time{})
		if err != nil {
			return err
		}
		w.keep(ctx, h)
		return nil
	})
}

// open takes the next intended arrival whenever this user is free.
func (w *AcquireRelease) open(ctx context.Context, u User) error {
	w.pace.join(ctx, u)
	for {
		at, ok := w.pace.next(ctx)
		if !ok {
			return nil
		}
		if h, err := w.acquire(ctx, u, at); err == nil {
			w.keep(ctx, h)
		}
	}
}

// Shares reports whether some acquires ask for shared mode.
func (w *AcquireRelease) Shares() bool { return w.Shared > 0 }

// GivesBackAtOnce reports whether locks are released as soon as they are granted.
func (w *AcquireRelease) GivesBackAtOnce() bool { return w.Hold == 0 }

func (w *AcquireRelease) acquire(ctx context.Context, u User, intended time.Time) (Hold, error) {
	n := w.choose(u)
	if s, ok := u.(Sharer); ok && w.Shared > 0 && u.Random().Float64() < w.Shared {
		return s.AcquireShared(ctx, n, intended)
	}
	return u.Acquire(ctx, n, intended)
}

func (w *AcquireRelease) keep(ctx context.Context, h Hold) {
	clock.Sleep(ctx, w.Hold)
	_ = h.Release(ctx) // recorded by the client
}

func (w *AcquireRelease) choose(u User) int {
	if w.OwnLocks {
		return u.Identity().Number
	}
	return pick(u, w.Count)
}
