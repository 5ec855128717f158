package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
)

// progressEvery is how often the load reports how far it is.
const progressEvery = 250 * time.Millisecond

// load lets the clients go, injects the schedule, takes the steps, and returns when the time is over, the steps are
// done, a node failed or ctx ended.
func (r *run) load(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer r.injecting.Wait() // an injection under way must be on the stack before anybody heals
	defer cancel()
	for _, s := range r.sessions {
		if s.index >= 0 {
			r.deaths.Go(func() { r.watchDeath(s) })
		}
	}
	go r.tick(ctx)
	r.injecting.Go(func() { r.followSchedule(ctx) })

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.steps(gctx) })
	if r.plan.workload != nil {
		g.Go(func() error {
			if err := sleepUntil(gctx, r.startTime()+int64(r.plan.load())); err != nil {
				return fmt.Errorf("the load was cut short: %w", err)
			}
			return nil
		})
	}
	var watch errgroup.Group
	watch.Go(func() error { defer cancel(); return r.watchFailure(ctx) })
	err := g.Wait()
	cancel()
	return cmp.Or(watch.Wait(), err) // what a failed node cuts short says nothing more
}

func (r *run) startTime() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.env.Start
}

// tick reports progress until ctx ends.
func (r *run) tick(ctx context.Context) {
	for clock.Sleep(ctx, progressEvery) == nil {
		r.progress("")
	}
}

// followSchedule injects what the plan holds, when it holds it. Each injection runs beside the others, unless none may
// overlap; its heal comes when its time is over.
func (r *run) followSchedule(ctx context.Context) {
	over := make(chan struct{})
	close(over)
	for _, d := range r.plan.schedule {
		at := r.startTime() + int64(d.at)
		if err := sleepUntil(ctx, at); err != nil && (!r.plan.promise.Serial || clock.Now() < at) {
			return
		}
		if r.plan.promise.Serial && !r.turn(ctx, d, over) {
			continue
		}
		done := make(chan struct{})
		over = done
		r.injecting.Go(func() {
			defer close(done)
			r.carryOut(ctx, d)
		})
	}
}

// turn waits until the injection before is healed. What then could not be healed before the end is not made.
func (r *run) turn(ctx context.Context, d due, over <-chan struct{}) bool {
	why := "the run ended while the one before it stood"
	select {
	case <-over:
		rest := r.startTime() + int64(r.plan.load()) - clock.Now()
		if ctx.Err() != nil {
			break
		}
		if clock.Now() < r.startTime()+int64(d.at)+int64(late) || rest > int64(d.lasts) {
			return true
		}
		why = fmt.Sprintf("when the one before it was healed, only %s of the run were left", time.Duration(rest).Round(time.Millisecond))
	case <-ctx.Done():
	}
	r.leaveOut(d, why)
	return false
}

// late is how late an injection may come that had to wait without being looked at again.
const late = 100 * time.Millisecond

// carryOut makes one injection of the schedule, and heals it when its time is over.
func (r *run) carryOut(ctx context.Context, d due) {
	f := r.inject(ctx, d.inj, r.startTime()+int64(d.at))
	if !d.inj.kind.Lasting || f.Receipt.Status == history.NotMade {
		return
	}
	if d.lasts == 0 {
		if r.plan.promise.Serial {
			<-ctx.Done() // it stands: nothing may follow
		}
		return
	}
	from := f.Bit
	if from == 0 {
		from = clock.Now()
	}
	if sleepUntil(ctx, from+int64(d.lasts)) == nil {
		r.healOne(f)
	}
}

// sleepUntil waits until the run's clock shows t.
func sleepUntil(ctx context.Context, t int64) error {
	return clock.Sleep(ctx, time.Duration(t-clock.Now()))
}

// watchDeath writes the end of the holds of a client whose process was seen dead.
func (r *run) watchDeath(s *session) {
	select {
	case <-s.ended:
	case <-r.over:
		return
	}
	if s.finished() != nil {
		return
	}
	alive := max(s.heardAt(), r.killedAt(s.node.Name()))
	for _, h := range r.live.bury(s.index) {
		e := history.Event{Kind: history.Dead, Phase: history.Info, User: h.user, Grant: h.grant, Lock: h.lock, Value: alive}
		r.own.add(e)
		r.live.mark(e)
	}
}

// killedAt returns the last moment at which a node that a fault killed was certainly alive: just before the signal.
func (r *run) killedAt(node string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var at int64
	for i, f := range r.faults {
		if r.injected[i].kind.Kills && f.Receipt.Status != history.NotMade && slices.Contains(f.Targets, node) {
			at = max(at, f.Start)
		}
	}
	return at
}

// watchFailure ends the load when a node fails that no fault asked to.
func (r *run) watchFailure(ctx context.Context) error {
	for clock.Sleep(ctx, 100*time.Millisecond) == nil {
		for _, s := range r.sessions {
			if err := s.failure(); err != nil && (s.refusal() != nil || !r.mayBeDead(s.node)) {
				return err
			}
		}
		for _, n := range r.cluster.Nodes {
			if !n.Running() && !r.mayBeDead(n) {
				return fmt.Errorf("%s ended although no fault asked for it", n.Name())
			}
		}
	}
	return nil
}

// mayBeDead tells whether a node was asked to end: by a fault that kills and has not been healed, or by a point at which
// its user dies.
func (r *run) mayBeDead(n *cluster.Node) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.doomed, n.Name()) {
		return true
	}
	for i, f := range r.faults {
		kills := r.injected[i].kind.Kills && f.Receipt.Status != history.NotInstalled && f.Receipt.Status != history.NotMade
		if kills && slices.Contains(f.Targets, n.Name()) && (f.Healed == nil || !n.Restartable()) {
			return true
		}
	}
	return false
}

// stopRole sends stop to every node of a role and waits until their streams have ended.
func (r *run) stopRole(ctx context.Context, role cluster.Role) error {
	var g errgroup.Group
	for _, s := range r.sessions {
		if s.node.Role() == role && s.node.Running() {
			g.Go(func() error { return s.stop(ctx) })
		}
	}
	return g.Wait()
}
