package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
)

// schedule makes the injections of the plan at their times.
type schedule struct {
	plan     *plan.Plan
	record   *rundir.Dir
	injector *injector
	// injecting counts the injections under way, so that the end of the load waits for them.
	injecting sync.WaitGroup
}

// follow makes the injections of the plan at their times, in parallel unless none may overlap, and heals each when
// its time is over.
func (s *schedule) follow(ctx context.Context) {
	over := make(chan struct{})
	close(over)
	for _, d := range s.plan.Schedule {
		at := s.record.Start() + int64(d.At)
		if err := sleepUntil(ctx, at); err != nil && (!s.plan.Promise.Serial || clock.Now() < at) {
			return
		}
		if s.plan.Promise.Serial && !s.turn(ctx, d, over) {
			continue
		}
		done := make(chan struct{})
		over = done
		s.injecting.Go(func() {
			defer close(done)
			s.carryOut(ctx, d)
		})
	}
}

// turn waits until the injection before is healed. It reports whether this one can still be healed before the end; if
// not, the injection is recorded as not made.
func (s *schedule) turn(ctx context.Context, d plan.Due, over <-chan struct{}) bool {
	why := "the run ended while the previous one was active"
	select {
	case <-over:
		rest := s.record.Start() + int64(s.plan.Load()) - clock.Now()
		if ctx.Err() != nil {
			break
		}
		if clock.Now() < s.record.Start()+int64(d.At)+int64(lateness) || rest > int64(d.Lasts) {
			return true
		}
		why = fmt.Sprintf("when the previous one was healed, only %s of the run were left",
			time.Duration(rest).Round(time.Millisecond))
	case <-ctx.Done():
	}
	s.injector.leaveOut(d, why)
	return false
}

// lateness is how late an injection may come before turn checks whether there is time left for it.
const lateness = 100 * time.Millisecond

// carryOut makes one injection of the schedule, and heals it when its time is over.
func (s *schedule) carryOut(ctx context.Context, d plan.Due) {
	f := s.injector.inject(ctx, d, s.record.Start()+int64(d.At))
	if !d.Inj.Kind.Lasts(d.Inj.Fault) || f.Receipt.Status == history.NotMade {
		return
	}
	if d.Lasts == 0 {
		if s.plan.Promise.Serial {
			<-ctx.Done() // it is active: nothing may follow
		}
		return
	}
	from := f.Bit
	if from == 0 {
		from = clock.Now()
	}
	until := from + int64(d.Lasts)
	if sleepUntil(ctx, until) == nil {
		s.injector.heal(f, f.HealDue(until))
	}
}

// sleepUntil waits until the run's clock shows t.
func sleepUntil(ctx context.Context, t int64) error {
	return clock.Sleep(ctx, time.Duration(t-clock.Now()))
}
