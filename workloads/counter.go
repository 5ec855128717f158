package workloads

import (
	"context"

	"github.com/lockquake/lockquake/internal/clock"
)

// Counter is the workload that increments a value under a lock: read, wait, write one more. It shows the harm done
// when the lock fails.
type Counter struct {
	Cycles `yaml:",inline"`
}

var counter = Kind{
	Name:       "counter",
	Doc:        "Increment a protected number: read it under the lock, wait, write it plus one.",
	Increments: true,
	New: func(decode func(into any) error) (Workload, error) {
		w := &Counter{Cycles: Cycles{Count: 1}}
		if err := decode(w); err != nil {
			return nil, err
		}
		return w, w.check()
	},
}

// NeedsResource returns true: the resource stores the counters.
func (w *Counter) NeedsResource() bool { return true }

// Run counts until ctx ends. A cycle that has begun is finished.
func (w *Counter) Run(ctx context.Context, u User) error {
	return w.run(ctx, u, func(h Hold) {
		if n, err := h.Read(ctx); err == nil {
			clock.Sleep(ctx, w.Hold)
			_ = h.Write(ctx, n+1)
		}
	})
}
