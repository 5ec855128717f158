package workloads

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// GuardedSet is the workload that puts elements into a set: read the whole set, wait, write it back with one element
// more. It shows how many acknowledged elements are missing at the end.
//
// The resource keeps a number, which stands for a set: it names the element that was added last. What the writer of
// that element had read names the set before. So a write replaces the whole set, as with a set that is kept in one
// cell.
type GuardedSet struct {
	// Count is the number of locks, each of which protects a set; each cycle takes one at random.
	Count int `yaml:"locks" json:"locks"`
	// Hold is the time between the read and the write; with Spread each cycle draws its own, up to this.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Spread draws each hold from 0 to Hold.
	Spread bool `yaml:"spread" json:"spread"`
	// Think is how long a user waits between a release and its next acquire.
	Think time.Duration `yaml:"think" json:"think"`
}

var guardedSet = Kind{
	Name:   "guarded-set",
	Doc:    "Put elements into a set: read all of it, wait, write all of it back with one element more.",
	Writes: Elements,
	New: func(decode func(into any) error) (Workload, error) {
		w := &GuardedSet{Count: 1}
		if err := decode(w); err != nil {
			return nil, err
		}
		if err := checkLocks(w.Count); err != nil {
			return nil, err
		}
		return w, checkTimes(w.Hold, w.Think)
	},
}

// Locks returns the number of sets.
func (w *GuardedSet) Locks(int) int { return w.Count }

// NeedsResource returns true: the sets are there.
func (w *GuardedSet) NeedsResource() bool { return true }

// Run adds elements until ctx ends. A cycle that has begun is finished.
func (w *GuardedSet) Run(ctx context.Context, u User) error {
	element := int64(u.Identity().Number+1) << 32 // no two elements of a run are the same, and none is 0: the empty set
	return inside(ctx, w.Think, u, anyOf(u, w.Count), func(h Hold) {
		if _, err := h.Read(ctx); err == nil {
			clock.Sleep(ctx, w.hold(u))
			element++
			_ = h.Write(ctx, element)
		}
	})
}

func (w *GuardedSet) hold(u User) time.Duration {
	if !w.Spread || w.Hold <= 0 {
		return w.Hold
	}
	return time.Duration(u.Random().Int64N(int64(w.Hold) + 1))
}
