package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/kept"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// run is one run under way: it takes its parts through the phases.
type run struct {
	options Options
	plan    *plan.Plan
	within  deadlines
	id      string

	record    *rundir.Dir       // env.json
	faults    *rundir.Faults    // faults.jsonl
	own       *rundir.Journal   // the engine's own history: deaths and the final read
	reporter  *reporter         // of progress
	nodes     *deployment.Nodes // the cluster and its service
	takeover  *kept.Takeover    // of servers kept by an earlier run
	clocks    *watch.Measurer
	processes *control.Processes // clients and resource
	readings  readings           // of their counters and the servers'
	injector  *injector
	schedule  *schedule
	steps     *stepRunner
	observer  *observer // of the service, for the steps
	live      *live.Table
	contents  deployment.Contents
	wall      *watch.WallClock // nil before the load
}

// Run carries out a scenario and returns the directory it left. The directory holds all that could be recorded, also
// if there is an error; it is "" if nothing was started. When ctx ends, faults are healed and nodes torn down first.
func Run(ctx context.Context, o Options) (dir string, err error) {
	if o.Began == 0 {
		o.Began = clock.Now()
	}
	p, err := Check(o)
	if err != nil {
		return "", err
	}
	o.Kept = o.sharing(p)
	r := newRun(o, p)
	if err := r.prepare(); err != nil {
		return "", err
	}
	return r.record.Path, r.do(ctx)
}

// sharing returns the servers that a run may take over, reset, and leave: none if it starts none, or if they are
// external.
func (o Options) sharing(p *plan.Plan) *kept.Servers {
	if len(p.Specs.Of(node.Server)) == 0 || o.Attached != nil {
		return nil
	}
	return o.Kept
}

func newRun(o Options, p *plan.Plan) *run {
	r := &run{
		options: o, plan: p, within: generous, id: cmp.Or(p.ID, plan.NewID()), live: live.New(), own: &rundir.Journal{},
	}
	name := o.Started.UTC().Format("20060102T150405.000") + "-" + strconv.FormatUint(p.Scenario.Run.Seed, 10)
	r.record = &rundir.Dir{Path: filepath.Join(o.Out, p.Scenario.Name, name), Log: o.Log}
	r.faults = &rundir.Faults{Dir: r.record}
	r.reporter = &reporter{show: o.Progress, total: p.Load(), record: r.record, live: r.live, faults: r.faults}
	r.nodes = &deployment.Nodes{Plan: p, Dir: r.record}
	r.clocks = &watch.Measurer{Dir: r.record}
	r.processes = &control.Processes{
		Plan: p, Attached: o.Attached != nil, Counted: o.NoRecord, Modules: o.ClientModules, Events: o.Events,
		Nodes: r.nodes, Live: r.live, Faults: r.faults, Dir: r.record, Clocks: r.clocks, Own: r.own,
	}
	r.readings = readings{
		plan: p, nodes: r.nodes, processes: r.processes, record: r.record, own: r.own,
		counters: deployment.Counters{Nodes: r.nodes, Attached: o.Attached != nil},
	}
	r.takeover = &kept.Takeover{
		Kept: o.Kept, Plan: p, Provider: o.Provider, Images: o.Images, Nodes: r.nodes,
		Clocks: control.Clocks{Nodes: r.nodes, Processes: r.processes}, Faults: r.faults, Dir: r.record,
		Tell: r.reporter.tell,
	}
	r.injector = &injector{
		plan: p, nodes: r.nodes, processes: r.processes, counters: r.readings.counters, live: r.live, faults: r.faults,
		record: r.record, reporter: r.reporter,
		heals: chaos.NewStack(), stops: chaos.NewStack(), leads: leads{faults: r.faults},
	}
	r.schedule = &schedule{plan: p, record: r.record, injector: r.injector}
	r.observer = &observer{plan: p, nodes: r.nodes, live: r.live, seen: rundir.NewObservations()}
	r.contents = deployment.Contents{Nodes: r.nodes, Attached: o.Attached != nil}
	r.steps = &stepRunner{
		plan: p, within: &r.within, live: r.live, processes: r.processes, counters: r.readings.counters,
		injector: r.injector, observer: r.observer, record: r.record, reporter: r.reporter,
		read: lastRead{}, named: map[string]*rundir.Injected{},
	}
	return r
}

// prepare makes the run directory and writes what is known before anything starts.
func (r *run) prepare() error {
	if err := r.record.Create(r.plan.Scenario); err != nil {
		return err
	}
	if err := r.writeDrawn(); err != nil {
		return err
	}
	if err := r.own.Open(filepath.Join(r.record.HistoryDir(), "engine.lqh"), r.plan.Locks); err != nil {
		return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
	}
	r.record.Env = describe(r.options, r.plan, r.id, r.record.Path)
	return r.record.Write()
}

// do goes through the phases. Whatever happens, it heals, tears down and writes what is known.
func (r *run) do(ctx context.Context) (err error) {
	whole := false
	defer func() {
		if ctx.Err() != nil {
			r.record.Change(func(e *results.Env) { e.Interrupted = true }) // whatever is there is judged
		}
		err = errors.Join(err, r.finish(ctx), r.takeover.Left)
		if whole && ctx.Err() == nil {
			r.record.Link()
		}
	}()
	if err := r.phase(results.TimeUp, func() error { return r.up(ctx) }); err != nil {
		var wrong plan.UsageError
		switch {
		case ctx.Err() != nil:
			return nil // interrupted while starting: finish says so
		case errors.As(err, &wrong): // an external client's limits are known once it has said hello
			return wrong
		}
		return plan.MissingError{Text: err.Error()}
	}
	defer r.processes.Watch.KeepAsking(ctx)()
	r.clocks.Keep(ctx, r.nodes.Cluster.AgentClocks)
	defer r.clocks.Stop()
	pulse := r.watchSelf()
	defer pulse.Stop() // before finish closes the engine's history
	r.nodes.Explain(ctx, false)
	r.contents.Before(ctx)
	if !r.plan.Warms() {
		r.readings.take(ctx)
	}
	loadErr := r.phase(results.TimeLoad, func() error { return r.load(ctx) })
	r.measured(context.WithoutCancel(ctx))
	if loadErr != nil && ctx.Err() == nil {
		r.record.Unknown("%v", loadErr)
	}
	_ = r.phase(results.TimeHeal, func() error { r.heal(ctx); return nil })
	_ = r.phase(results.TimeSettle, func() error { r.settle(ctx); return nil })
	whole = true
	return nil
}

// phase enters a phase, and records how long it took.
func (r *run) phase(name string, f func() error) error {
	r.reporter.enter(name)
	return r.record.Timing(name, f)
}

// up starts all nodes in parallel. It takes over the clean ones of servers that an earlier run kept. It returns when
// the service serves and every client is connected to it.
func (r *run) up(ctx context.Context) error {
	if a := r.options.Attached; a != nil {
		if err := r.nodes.Enter(ctx, a); err != nil {
			return err
		}
	}
	kept, err := r.takeover.TakeOver(ctx)
	if err == nil && !kept {
		o := r.options
		err = r.nodes.Open(ctx, o.Provider, cluster.Request{
			Run: r.id, Images: o.Images, Agent: o.Kept != nil && o.Kept.Agent, Keep: o.Keep, Reuse: o.Kept != nil,
		})
	}
	if err != nil {
		return err
	}
	if lister, ok := r.nodes.Service.(topology.SessionLister); ok {
		r.processes.Watch = watch.NewSessions(lister, r.record.Log)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return r.record.Timing(results.TimeServe, func() error {
			if err := r.nodes.AwaitReady(gctx, r.within.ready); err != nil {
				return err
			}
			r.takeover.Remember(gctx)
			return nil
		})
	})
	g.Go(func() error {
		return r.record.Timing(results.TimeHello, func() error { return r.processes.Greet(gctx, r.within.hello) })
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return r.record.Timing(results.TimeConnect, func() error { return r.processes.Start(ctx, r.within.hello, r.id) })
}

// watchSelf records the engine's own stalls, which delay injections and heals. At every beat it compares the
// machine's clocks.
func (r *run) watchSelf() *wire.Pulse {
	r.wall = watch.NewWallClock(clock.Read)
	return wire.Watch(func(gap int64) {
		r.own.Add(history.Event{Kind: history.Stall, Phase: history.Info, Value: gap})
	}, r.wall.Look)
}

// load starts the clients, injects the schedule, and takes the steps. It returns when the time is over, the steps are
// done, a node failed or ctx ended.
func (r *run) load(ctx context.Context) error {
	start := clock.Now() + int64(20*time.Millisecond) // all clients have the frame by then
	r.record.Change(func(e *results.Env) {
		e.Start = start
		if r.plan.Warms() {
			e.Measured = &results.Interval{From: start + int64(r.plan.Scenario.Run.Warmup)}
		}
	})
	if err := r.processes.LetGo(start); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer r.schedule.injecting.Wait() // an injection under way must be on the stack before any heal
	defer cancel()
	r.processes.WatchDeaths()
	go r.reporter.tick(ctx)
	r.schedule.injecting.Go(func() { r.schedule.follow(ctx) })

	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.steps.take(gctx) })
	if r.plan.Workload != nil {
		g.Go(func() error { return r.warm(gctx, start) })
		g.Go(func() error { r.readings.footprints(gctx, start); return nil })
		g.Go(func() error {
			if err := sleepUntil(gctx, start+int64(r.plan.Load())); err != nil {
				return fmt.Errorf("the load was cut short: %w", err)
			}
			return nil
		})
	}
	var watch errgroup.Group
	watch.Go(func() error { defer cancel(); return r.processes.WatchFailure(ctx) })
	watch.Go(func() error { outsideWatch{r.nodes, r.faults, r.record}.watch(ctx); return nil })
	err := g.Wait()
	cancel()
	r.observer.asking.Wait()
	return cmp.Or(watch.Wait(), err) // errors that follow from a failed node add nothing
}

// warm takes the first reading when the warm-up is over.
func (r *run) warm(ctx context.Context, start int64) error {
	if r.plan.Warms() && sleepUntil(ctx, start+int64(r.plan.Scenario.Run.Warmup)) == nil {
		r.readings.take(ctx)
	}
	return nil // whatever cuts the load short reports it
}

// measured ends the measured time of a run with a warm-up: healing is not part of it.
func (r *run) measured(ctx context.Context) {
	if !r.plan.Warms() {
		return
	}
	r.record.Change(func(e *results.Env) {
		if e.Measured != nil {
			e.Measured.To = min(clock.Now(), e.Start+int64(r.plan.Load()))
		}
	})
	r.readings.take(ctx)
}

// heal undoes every fault that is still active, even if ctx is over, and waits until the service serves again.
func (r *run) heal(ctx context.Context) {
	r.injector.healAll(ctx)
	if err := r.nodes.AwaitRecovery(context.WithoutCancel(ctx), r.within.recover); err != nil {
		r.record.Unknown("%v", err)
		return
	}
	r.record.Change(func(e *results.Env) { e.Recovered = true })
	r.injector.leads.asking.Wait() // until the leader after each fault at a leader is known
}

// interrupted is how long a client may take to end, and the resource to answer, after the run was interrupted.
const interrupted = 2 * time.Second

// settle lets the clients work on for a while, stops them, and reads what the lock protected.
func (r *run) settle(ctx context.Context) {
	if r.plan.Workload != nil {
		_ = clock.Sleep(ctx, r.plan.Scenario.Run.Settle)
	}
	if !r.plan.Warms() {
		r.readings.take(context.WithoutCancel(ctx))
	}
	r.contents.Loaded(context.WithoutCancel(ctx))
	r.record.Change(func(e *results.Env) { e.End = clock.Now() })
	// Each call has its own time limit: a client that does not end takes no time from the others.
	each := func(within time.Duration, do func(context.Context) error) error {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(interrupted, cancel) })()
		return do(bounded)
	}
	if err := each(r.within.stop+r.plan.Scenario.Workload.Timeout, func(ctx context.Context) error {
		r.clocks.Finish(ctx)
		return r.processes.Stop(ctx, node.Client)
	}); err != nil {
		r.record.Unknown("stopping the clients: %v", err)
	} else {
		r.contents.After(ctx)
	}
	if err := each(r.within.stop, r.readings.finalRead); err != nil {
		r.record.Unknown("final read: %v", err)
	} else {
		r.record.Change(func(e *results.Env) { e.FinalRead = true })
	}
	if err := each(r.within.stop, func(ctx context.Context) error {
		return r.processes.Stop(ctx, node.Resource)
	}); err != nil {
		r.record.Unknown("stopping the resource: %v", err)
	}
}

// finish tears down and writes all that is known, whatever happened before.
func (r *run) finish(ctx context.Context) error {
	var errs []error
	r.injector.healAll(ctx) // nothing to do, unless starting was cut short
	r.injector.leads.stop() // before the service, which it asks
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.within.close)
	defer cancel()
	errs = append(errs, r.nodes.Close(ctx), r.down(ctx))
	if a := r.options.Attached; a != nil {
		errs = append(errs, r.nodes.Leave(ctx, a, r.reporter.tell))
	}
	r.processes.Collect(ctx, r.within.collect)
	r.own.AddLate(r.processes.Watch.Ends())
	errs = append(errs, r.own.Close(), r.clocks.Close())
	r.describeEnd()
	r.faults.Write()
	return errors.Join(append(errs, r.observer.seen.Write(r.record.Path), r.writeDrawn(), r.record.Write())...)
}

func (r *run) down(ctx context.Context) error {
	if r.nodes.Cluster == nil {
		return nil
	}
	if r.options.Keep {
		r.processes.LeaveAlone()
	}
	return r.phase(results.TimeDown, func() error {
		if r.takeover.HandOn(ctx) {
			return nil
		}
		return r.nodes.Cluster.Close(ctx)
	})
}

// describeEnd records what is known only at the end.
func (r *run) describeEnd() {
	r.record.Change(func(e *results.Env) {
		e.Host["load_after"] = LoadAverage()
		if r.nodes.Cluster != nil {
			e.Cluster = maps.Clone(r.nodes.Cluster.Describe) // kept servers go on in another run's cluster
			e.Warnings = append(e.Warnings, control.LeftBehind(r.nodes.Cluster.Nodes)...)
		}
		if first := r.live.FirstGrant(); first != 0 {
			e.Timings[results.TimeFirstGrant] = (first - r.options.Began) / int64(time.Millisecond)
		}
		if r.wall != nil {
			e.ClockSteps = r.wall.Steps
		}
		e.Finished = true
	})
}

// writeDrawn writes the drawn schedule into the run directory, if there is one.
func (r *run) writeDrawn() error {
	if len(r.plan.Schedule) == 0 {
		return nil
	}
	path := filepath.Join(r.record.Path, results.FileDrawn)
	if err := results.WriteAtomically(path, r.plan.Drawn(r.faults.Outcomes())); err != nil {
		return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
	}
	return nil
}
