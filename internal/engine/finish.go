package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// heal undoes every fault that still stands, also when ctx is over, and waits until the service serves again.
func (r *run) heal(ctx context.Context) {
	r.healAll(ctx)
	probe, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.within.recover)
	defer cancel()
	if err := r.awaitService(probe, r.within.recover); err != nil {
		r.unknown("the service did not recover: %v", err)
		return
	}
	for _, n := range r.cluster.ByRole(cluster.Server) {
		if err := r.awaitServes(probe, n.Name()); err != nil {
			r.unknown("%s did not recover: %v", n.Name(), err)
			return
		}
	}
	r.mu.Lock()
	r.env.Recovered = true
	r.mu.Unlock()
	r.leading.Wait() // what was broken at a leader is told to its end
}

func (r *run) healAll(ctx context.Context) {
	begun := clock.Now()
	for _, h := range r.stops.HealAll(ctx) {
		if h.Err != nil {
			r.unknown("continuing a stopped holder: %v", h.Err)
		}
	}
	for _, h := range r.heals.HealAll(ctx) {
		r.mu.Lock()
		f := r.faults[h.ID-1]
		r.mu.Unlock()
		r.healed(f, begun, h.Receipt, h.Err)
	}
}

func (r *run) awaitServes(ctx context.Context, node string) error {
	for {
		got, err := r.service.Ask(ctx, node, "serves")
		if err == nil && got == "true" {
			return nil
		}
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("it does not serve (%q): %w", got, errors.Join(err, ctx.Err()))
		}
	}
}

// settle lets the clients work on for a while, stops them, and reads what the lock protected.
func (r *run) settle(ctx context.Context) {
	if r.plan.workload != nil {
		_ = clock.Sleep(ctx, r.plan.scenario.Run.Settle)
	}
	r.takeReading(context.WithoutCancel(ctx))
	r.mu.Lock()
	r.env.End = clock.Now()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.within.stop+r.plan.scenario.Workload.Timeout)
	defer cancel()
	for _, s := range r.sessions {
		if err := s.moved(ctx); err != nil {
			r.unknown("%v", err)
		}
	}
	if err := r.stopRole(ctx, cluster.Client); err != nil {
		r.unknown("stopping the clients: %v", err)
	}
	if err := r.finalRead(ctx); err != nil {
		r.unknown("final read: %v", err)
	} else {
		r.mu.Lock()
		r.env.FinalRead = true
		r.mu.Unlock()
	}
	if err := r.stopRole(ctx, cluster.Resource); err != nil {
		r.unknown("stopping the resource: %v", err)
	}
}

// finalRead asks the resource for the value of every lock and writes it into the history.
func (r *run) finalRead(ctx context.Context) error {
	if r.plan.resource == nil {
		return nil
	}
	for i := range r.plan.locks {
		res, err := r.finalOf(ctx, i)
		if err != nil {
			return err
		}
		e := history.Event{Kind: history.Final, Phase: history.Info, Lock: uint16(i), Value: res.Value, Valid: res.Count}
		r.own.add(e)
	}
	return nil
}

// finalOf asks for what one lock protects. Of replicas a majority must answer; what was put down last on any of those counts.
func (r *run) finalOf(ctx context.Context, lock int) (best wire.Result, err error) {
	all, answers := 0, 0
	var errs []error
	for _, s := range r.sessions {
		if s.index >= 0 {
			continue
		}
		all++
		res, err := s.ask(ctx, wire.Command{Do: wire.DoFinal, Lock: lock})
		if err == nil && res.Outcome != wire.OutcomeOK {
			err = fmt.Errorf("%s of %s: %s", res.Outcome, r.plan.locks[lock], res.Error)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if answers++; answers == 1 || res.Epoch > best.Epoch || res.Epoch == best.Epoch && res.Number > best.Number {
			best = res
		}
	}
	if answers <= all/2 {
		return best, errors.Join(errs...)
	}
	return best, nil
}

// finish tears down and writes all that is known, whatever happened before.
func (r *run) finish(ctx context.Context) error {
	var errs []error
	r.healAll(ctx) // nothing to do, unless starting was cut short
	r.stopLeads()  // before the service that is asked
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.within.close)
	defer cancel()
	if r.service != nil {
		describe, stop := context.WithTimeout(ctx, 5*time.Second)
		service := r.service.Describe(describe)
		stop()
		r.mu.Lock()
		r.env.Service = service
		r.mu.Unlock()
		errs = append(errs, r.service.Close())
	}
	errs = append(errs, r.down(ctx))
	r.collect(ctx)
	r.deaths.Wait()
	r.own.addLate(r.vigil.ends())
	errs = append(errs, r.own.close())
	r.describeEnd()
	r.writeFaults()
	errs = append(errs, r.seen.write(r.dir))
	if len(r.plan.schedule) > 0 {
		errs = append(errs, r.writeDrawn())
	}
	errs = append(errs, r.writeEnv())
	return errors.Join(errs...)
}

func (r *run) down(ctx context.Context) error {
	if r.cluster == nil {
		return nil
	}
	if r.options.Keep {
		// The nodes stay, but nobody drives them any more: a client ends itself when its input ends.
		for _, s := range r.sessions {
			_ = s.conn.Close()
		}
	}
	return r.timed(results.TimeDown, func() error {
		if r.handOn(ctx) {
			return nil
		}
		return r.cluster.Close(ctx)
	})
}

// collect closes the histories of all nodes and takes down what they said of themselves.
func (r *run) collect(ctx context.Context) {
	defer close(r.over)
	for _, s := range r.sessions {
		select {
		case <-s.ended:
		case <-ctx.Done():
			r.unknown("%s: its stream did not end", s.node.Name())
			continue
		}
		if err := s.close(); err != nil {
			r.unknown("%s: history: %v", s.node.Name(), err)
		}
		r.lastWord(s)
	}
}

// lastWord takes down what a node said at its end. One that ended without a word, although nothing asked it to die, may
// have kept back what it saw.
func (r *run) lastWord(s *session) {
	st := results.ClientStats{Name: s.node.Name(), Dead: true}
	d := s.finished()
	if d != nil {
		st = results.ClientStats{
			Name: s.node.Name(), Recorded: d.Recorded, Dropped: d.Dropped, Stall: d.Stall, Cycles: d.Cycles, Lag: d.Lag,
			CPU: d.CPU, Unstarted: d.Unstarted, Errors: d.Errors,
		}
	}
	if err := s.refusal(); err != nil {
		r.unknown("%v", err)
	} else if dies := r.mayBeDead(s.node); !dies {
		if err := s.failure(); err != nil {
			r.unknown("%v", err)
		} else if d == nil {
			r.unknown("%s ended without its last word", s.node.Name())
		}
	}
	r.introduce(&st, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env.Clients = append(r.env.Clients, st)
}

// introduce takes down what program a node is. Lockquake's own client names the modules of all its locks; those of this run's count.
func (r *run) introduce(st *results.ClientStats, s *session) {
	h := s.greeting()
	if h == nil {
		return
	}
	own := strings.HasPrefix(h.Process, wire.ProcessOwn)
	if s.index >= 0 {
		own = h.Process == wire.ProcessClient
	}
	st.Process, st.Software, st.Libraries, st.Foreign = h.Process, h.Software, maps.Clone(h.Libraries), !own
	if own && r.options.ClientModules != nil {
		used := r.options.ClientModules(r.plan.backend.Name, r.plan.lock.Name)
		maps.DeleteFunc(st.Libraries, func(module, _ string) bool { return !slices.Contains(used, module) })
	}
	if h.Process == "" {
		r.unknown("%s does not say in its hello what program it is (process): nobody can tell who was judged", st.Name)
	}
}
