package workloads

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// GuardedSet is the workload that adds elements to a set: read the whole set, wait, write it back with one more
// element. It shows how many acknowledged elements are missing at the end.
//
// The resource keeps one number per set: the element added last. The value that its writer had read names the set
// before. So a write replaces the whole set, like a set stored in one cell.
type GuardedSet struct {
	Cycles `yaml:",inline"`
	// Spread draws each hold from 0 to Hold.
	Spread bool `yaml:"spread" json:"spread"`
}

var guardedSet = Kind{
	Name:   "guarded-set",
	Doc:    "Add elements to a set: read the whole set, wait, write it back with one more element.",
	Writes: Elements,
	New: func(decode func(into any) error) (Workload, error) {
		w := &GuardedSet{Cycles: Cycles{Count: 1}}
		if err := decode(w); err != nil {
			return nil, err
		}
		return w, w.check()
	},
}

// NeedsResource returns true: the resource stores the sets.
func (w *GuardedSet) NeedsResource() bool { return true }

// Run adds elements until ctx ends. A cycle that has begun is finished.
func (w *GuardedSet) Run(ctx context.Context, u User) error {
	element := int64(u.Identity().Number+1) << 32 // elements are unique in a run and never 0, the empty set
	return w.run(ctx, u, func(h Hold) {
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
