package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// schedule makes the injections of the plan at their times.
type schedule struct {
	plan     *Plan
	record   *record
	injector *injector
	// injecting counts the injections under way, so that the end of the load waits for them.
	injecting sync.WaitGroup
}

// follow makes the injections of the plan at their times, side by side unless none may overlap, and heals each when its
// time is over.
func (s *schedule) follow(ctx context.Context) {
	over := make(chan struct{})
	close(over)
	for _, d := range s.plan.schedule {
		at := s.record.start() + int64(d.at)
		if err := sleepUntil(ctx, at); err != nil && (!s.plan.promise.Serial || clock.Now() < at) {
			return
		}
		if s.plan.promise.Serial && !s.turn(ctx, d, over) {
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

// turn waits until the injection before is healed. It tells whether this one can still be healed before the end; if
// not, the injection is recorded as not made.
func (s *schedule) turn(ctx context.Context, d due, over <-chan struct{}) bool {
	why := "the run ended while the one before it stood"
	select {
	case <-over:
		rest := s.record.start() + int64(s.plan.load()) - clock.Now()
		if ctx.Err() != nil {
			break
		}
		if clock.Now() < s.record.start()+int64(d.at)+int64(late) || rest > int64(d.lasts) {
			return true
		}
		why = fmt.Sprintf("when the one before it was healed, only %s of the run were left",
			time.Duration(rest).Round(time.Millisecond))
	case <-ctx.Done():
	}
	s.injector.leaveOut(d, why)
	return false
}

// late is how late an injection may come without turn asking whether there is time left for it.
const late = 100 * time.Millisecond

// carryOut makes one injection of the schedule, and heals it when its time is over.
func (s *schedule) carryOut(ctx context.Context, d due) {
	f := s.injector.inject(ctx, d, s.record.start()+int64(d.at))
	if !d.inj.kind.Lasts(d.inj.fault) || f.Receipt.Status == history.NotMade {
		return
	}
	if d.lasts == 0 {
		if s.plan.promise.Serial {
			<-ctx.Done() // it stands: nothing may follow
		}
		return
	}
	from := f.Bit
	if from == 0 {
		from = clock.Now()
	}
	until := from + int64(d.lasts)
	if sleepUntil(ctx, until) == nil {
		s.injector.heal(f, f.healDue(until))
	}
}

// sleepUntil waits until the run's clock shows t.
func sleepUntil(ctx context.Context, t int64) error {
	return clock.Sleep(ctx, time.Duration(t-clock.Now()))
}
