package workloads

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// Counter is the workload that adds one to what the lock protects: read, wait, write one more. It shows the harm
// that is done where the lock fails.
type Counter struct {
	// Count is the number of locks, each of which protects a counter; each cycle takes one at random.
	Count int `yaml:"locks" json:"locks"`
	// Hold is the time between the read and the write.
	Hold time.Duration `yaml:"hold" json:"hold"`
	// Think is how long a user waits between a release and its next acquire.
	Think time.Duration `yaml:"think" json:"think"`
}

var counter = Kind{
	Name:       "counter",
	Doc:        "Add one to a protected number: read it under the lock, wait, write one more.",
	Increments: true,
	New: func(decode func(into any) error) (Workload, error) {
		w := &Counter{Count: 1}
		if err := decode(w); err != nil {
			return nil, err
		}
		if err := checkLocks(w.Count); err != nil {
			return nil, err
		}
		return w, checkTimes(w.Hold, w.Think)
	},
}

// Locks returns the number of locks.
func (w *Counter) Locks(int) int { return w.Count }

// NeedsResource returns true: the counters are there.
func (w *Counter) NeedsResource() bool { return true }

// Run counts until ctx ends. A cycle that has begun is finished.
func (w *Counter) Run(ctx context.Context, u User) error {
	return inside(ctx, w.Think, u, anyOf(u, w.Count), func(h Hold) {
		if n, err := h.Read(ctx); err == nil {
			clock.Sleep(ctx, w.Hold)
			_ = h.Write(ctx, n+1)
		}
	})
}
