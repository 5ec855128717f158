package engine

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/rundir"
)

// reporter reports the progress of a run to its caller.
type reporter struct {
	show   func(Progress) // nil: progress is not shown
	total  time.Duration  // of the load
	record *rundir.Dir
	live   *live.Table
	faults *rundir.Faults

	mu    sync.Mutex
	phase string // the one under way
}

// enter records the phase that begins.
func (r *reporter) enter(phase string) {
	r.mu.Lock()
	r.phase = phase
	r.mu.Unlock()
	r.tell("")
}

// tell reports what happened just now.
func (r *reporter) tell(text string) {
	if r.show == nil {
		return
	}
	p := Progress{Total: r.total, Text: text}
	p.Grants, p.Held = r.live.Granted()
	p.Faults, p.Standing = r.faults.Count()
	r.mu.Lock()
	p.Phase = r.phase
	r.mu.Unlock()
	if start := r.record.Start(); start != 0 {
		p.Elapsed = time.Duration(clock.Now() - start)
	}
	r.show(p)
}

// progressEvery is how often progress is reported during the load.
const progressEvery = 250 * time.Millisecond

// tick reports progress until ctx ends.
func (r *reporter) tick(ctx context.Context) {
	for clock.Sleep(ctx, progressEvery) == nil {
		r.tell("")
	}
}
