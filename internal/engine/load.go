package engine

import (
	"context"
	"errors"
	"fmt"
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
	return errors.Join(watch.Wait(), err)
}

func (r *run) startTime() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.env.Start
}

// tick reports progress until ctx ends.
func (r *run) tick(ctx context.Context) {
	for sleep(ctx, progressEvery) == nil {
		r.progress("load", "")
	}
}

// followSchedule injects what the plan holds, when it holds it. Each injection runs beside the others; its heal comes
// when its time is over.
func (r *run) followSchedule(ctx context.Context) {
	for _, p := range r.plan.schedule {
		at := r.startTime() + int64(p.At)
		if sleepUntil(ctx, at) != nil {
			return
		}
		r.injecting.Go(func() {
			f := r.inject(ctx, r.plan.injections[p.Entry], at)
			if p.For == 0 {
				return
			}
			from := f.Bit
			if from == 0 {
				from = clock.Now()
			}
			if sleepUntil(ctx, from+int64(p.For)) == nil {
				r.healOne(f)
			}
		})
	}
}

// sleepUntil waits until the run's clock shows t.
func sleepUntil(ctx context.Context, t int64) error {
	return sleep(ctx, time.Duration(t-clock.Now()))
}

// watchDeath writes the end of the holds of a client whose process was seen dead.
func (r *run) watchDeath(s *session) {
	<-s.ended
	if s.finished() != nil {
		return
	}
	alive := max(s.heardAt(), r.killedAt(s.node.Name()))
	r.live.mu.Lock()
	var dead []hold
	for u, h := range r.live.holds {
		if u.Client() == s.index && h.released == 0 {
			dead = append(dead, *h)
			h.lost = true
		}
	}
	r.live.mu.Unlock()
	for _, h := range dead {
		e := history.Event{Kind: history.Dead, Phase: history.Info, User: h.user, Grant: h.grant, Lock: h.lock, Value: alive}
		if err := r.own.add(e); err != nil {
			r.unknown("the engine's history: %v", err)
		}
	}
}

// killedAt returns the last moment at which a node that a fault killed was certainly alive: just before the signal.
func (r *run) killedAt(node string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var at int64
	for _, f := range r.faults {
		for _, t := range f.Targets {
			if t == node && (f.Bit == 0 || f.Bit > f.Start) {
				at = max(at, f.Start)
			}
		}
	}
	return at
}

// watchFailure ends the load when a node fails that no fault asked to.
func (r *run) watchFailure(ctx context.Context) error {
	for sleep(ctx, 100*time.Millisecond) == nil {
		for _, s := range r.sessions {
			if err := s.failure(); err != nil {
				return err
			}
		}
		if dead := r.unexpectedDeath(); dead != "" {
			return fmt.Errorf("%s ended although no fault asked for it", dead)
		}
	}
	return nil
}

// unexpectedDeath names a node that is not running and was never the target of a fault.
func (r *run) unexpectedDeath() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.cluster.Nodes {
		if n.Running() {
			continue
		}
		hit := false
		for _, f := range r.faults {
			for _, t := range f.Targets {
				hit = hit || t == n.Name()
			}
		}
		if !hit {
			return n.Name()
		}
	}
	return ""
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
