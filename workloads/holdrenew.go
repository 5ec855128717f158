package workloads

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// HoldRenew is the workload of long holds: it keeps a lock for longer than its TTL while a watchdog extends the
// grant. It shows whether renewals keep their promise.
type HoldRenew struct {
	Cycles `yaml:",inline"`
	// Touch is the interval between uses of the resource within a hold: read, and write one more. 0 means no use.
	Touch time.Duration `yaml:"touch" json:"touch"`
}

var holdRenew = Kind{
	Name:       "hold-renew",
	Doc:        "Hold a lock for long, while a watchdog extends the grant; use the resource now and then.",
	Increments: true,
	New: func(decode func(into any) error) (Workload, error) {
		w := &HoldRenew{Cycles: Cycles{Count: 1, Hold: 30 * time.Second}}
		if err := decode(w); err != nil {
			return nil, err
		}
		if w.Touch < 0 {
			return nil, fmt.Errorf("touch is %v: want a duration such as 500ms, or 0s", w.Touch)
		}
		return w, w.check()
	},
}

// NeedsResource reports whether the resource is used.
func (w *HoldRenew) NeedsResource() bool { return w.Touch > 0 }

// Renews returns true: a hold is meant to outlive its first validity.
func (w *HoldRenew) Renews() bool { return true }

// Run holds until ctx ends. The end cuts a hold short.
func (w *HoldRenew) Run(ctx context.Context, u User) error {
	return w.run(ctx, u, func(h Hold) { w.keep(ctx, h) })
}

// keep stays within the hold and uses the resource. It returns after a refused write or a request to stop.
func (w *HoldRenew) keep(ctx context.Context, h Hold) {
	if w.Touch == 0 {
		clock.Sleep(ctx, w.Hold)
		return
	}
	for left := w.Hold; left > 0 && ctx.Err() == nil; left -= w.Touch {
		clock.Sleep(ctx, min(w.Touch, left))
		n, err := h.Read(ctx)
		if err != nil {
			return
		}
		if err := h.Write(ctx, n+1); err != nil {
			return
		}
	}
}
