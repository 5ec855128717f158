package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// processes are the nodes with a control stream: the clients, and those nodes of the resource that have one.
type processes struct {
	plan    *plan.Plan
	options Options
	within  *deadlines
	nodes   *deployment.Nodes
	live    *live.Table
	watch   *watch.Sessions // nil where no grant lasts as long as a session
	faults  *rundir.Faults
	record  *rundir.Dir
	clocks  *watch.Measurer
	own     *rundir.Journal
	all     []*process // clients by index, then the resource

	counters serverCounters

	deaths sync.WaitGroup // watchers that may still write into the engine's history
	over   chan struct{}  // closed when no stream is waited for any more

	mu    sync.Mutex
	toDie []string // clients whose user is to die at a point
}

// clients returns the clients.
func (p *processes) clients() []*process {
	return slices.DeleteFunc(slices.Clone(p.all), func(s *process) bool { return s.index < 0 })
}

// resources returns the nodes of the resource.
func (p *processes) resources() []*process {
	return slices.DeleteFunc(slices.Clone(p.all), func(s *process) bool { return s.index >= 0 })
}

// greet opens the control stream of every node that has one and waits for its hello.
func (p *processes) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.within.hello, fmt.Errorf("not within %v", p.within.hello))
	defer cancel()
	index := 0
	for _, role := range []node.Role{node.Client, node.Resource} {
		for _, n := range p.nodes.Cluster.ByRole(role) {
			if role == p.nodes.Left {
				continue
			}
			if role == node.Resource && !speaks(p.plan.Resource, n.Name()) {
				continue
			}
			i := -1
			if role == node.Client {
				i = index
				index++
			}
			p.all = append(p.all, openProcess(n, i, p))
		}
	}
	for _, s := range p.all {
		if err := s.await(ctx, s.greeted, "hello"); err != nil {
			return err
		}
		if p.options.Attached != nil && s.index >= 0 {
			if err := checkOwn(s.greeting()); err != nil {
				return fmt.Errorf("%s: %w", s.node.Name(), err)
			}
		}
		if s.index >= 0 {
			if err := plan.CheckAnnounced(p.plan, s.node.Name(), s.greeting()); err != nil {
				return err
			}
		}
		if err := p.clocks.Meet(ctx, s.clock, s.greeting(), s.node.Process.Running, p.nodes.Cluster.SeparateClocks); err != nil {
			return err
		}
		if err := s.record(p.record.HistoryDir(), p.plan); err != nil {
			return err
		}
	}
	return nil
}

// checkOwn refuses clients of somebody else on an attached service: nobody knows whether they keep to the prefix.
func checkOwn(h *wire.Hello) error {
	if h != nil && h.Process == wire.ProcessClient {
		return nil
	}
	return errors.New("it is not lockquake's own client, and nobody knows whether it would keep to the prefix of an attached service")
}

// openProcess takes over the control stream of a running node.
func openProcess(n *cluster.Node, index int, p *processes) *process {
	s := newProcess(n, index, p.live, wire.NewConn(n.Process.Stdio().Out, n.Process.Stdio().In))
	s.watch, s.told, s.log, s.directed = p.watch, p.options.Events, p.record.Log.With("node", n.Name()),
		len(p.plan.StepUsers) > 0
	go s.read()
	return s
}

// start tells every node what it is: the resource first, because clients connect to it.
func (p *processes) start(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.within.hello, fmt.Errorf("not within %v", p.within.hello))
	defer cancel()
	frames := startFrames{plan: p.plan, nodes: p.nodes, id: id, record: !p.options.NoRecord}
	var errs []error
	for _, group := range [][]*process{p.resources(), p.clients()} {
		for _, s := range group {
			st, err := frames.of(s)
			if err != nil {
				return err
			}
			s.expect(st)
			errs = append(errs, s.conn.Send(wire.Frame{Type: wire.TypeStart, Start: st}))
		}
		for _, s := range group {
			errs = append(errs, s.await(ctx, s.ready, "ready"))
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// letGo lets the workload go at that time of the run's clock.
func (p *processes) letGo(start int64) error {
	for _, s := range p.clients() {
		if err := s.conn.Send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: s.clock.Own(start)}}); err != nil {
			return fmt.Errorf("%s: go: %w", s.node.Name(), err)
		}
	}
	return nil
}

// watchDeaths begins to watch for clients that die.
func (p *processes) watchDeaths() {
	for _, s := range p.clients() {
		p.deaths.Go(func() { p.watchDeath(s) })
	}
}

// watchDeath writes the end of the holds of a client whose process was seen dead. Where nobody saw that, nothing is
// known of their ends: the client of a host that is cut off goes on there.
func (p *processes) watchDeath(s *process) {
	select {
	case <-s.ended:
	case <-p.over:
		return
	}
	if s.finished() != nil {
		return
	}
	holds := p.live.RemoveHolds(s.index)
	if !p.mayBeDead(s.node) && !p.seenEnded(s.node) {
		return
	}
	s.died = true
	_, last := s.heard()
	alive := max(last, p.faults.KilledAt(s.node.Name()))
	for _, h := range holds {
		e := history.Event{
			Kind: history.Dead, Phase: history.Info, User: h.User, Grant: h.Grant, Lock: h.Lock,
			Value: alive,
		}
		p.own.Add(e)
		p.live.Mark(e)
	}
}

// dateDeaths dates the deaths of clients that a fault killed by when their processes were seen gone: their streams may
// end a second later.
func (p *processes) dateDeaths() {
	p.own.Change(func(e *history.Event) {
		if e.Kind != history.Dead {
			return
		}
		if gone := p.faults.GoneAt(p.all[e.User.Client()].node.Name()); gone != 0 {
			e.Time = min(e.Time, max(gone, e.Value))
		}
	})
}

// seenWithin is how long after its control stream a process may be seen to end: longer than any engine takes to tell.
const seenWithin = 2 * time.Second

// seenEnded tells whether the process of a node whose control stream ended was seen to end just then.
func (p *processes) seenEnded(n *cluster.Node) bool {
	late := time.NewTimer(seenWithin)
	defer late.Stop()
	select {
	case <-n.Process.Exited():
	case <-late.C:
	case <-p.over:
	}
	return n.Process.Ended() != ""
}

// watchFailure ends the load when a node fails that no fault asked to.
func (p *processes) watchFailure(ctx context.Context) error {
	for clock.Sleep(ctx, 100*time.Millisecond) == nil {
		for _, s := range p.all {
			if err := s.failure(); err != nil && (s.refusal() != nil || !p.mayBeDead(s.node)) {
				return err
			}
		}
		for _, n := range p.nodes.Cluster.Nodes {
			if !n.Process.Running() && !p.mayBeDead(n) {
				if n.Process.Ended() == "" { // as on a host that was cut off
					return fmt.Errorf("%s is out of sight although no fault asked for it; nobody saw its process end: it may have gone on", p.nodes.Named(n))
				}
				return fmt.Errorf("%s ended although no fault asked for it", p.nodes.Named(n))
			}
		}
	}
	return nil
}

// leaveAlone closes the control streams of nodes that stay: a client ends itself when its input ends.
func (p *processes) leaveAlone() {
	for _, s := range p.all {
		_ = s.conn.Close()
	}
}

// expectDeath notes that a node is to die at a point.
func (p *processes) expectDeath(n *cluster.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toDie = append(p.toDie, n.Name())
}

// mayBeDead tells whether a node was asked to end: by a fault that kills and has not been healed, or by a point at
// which its user dies.
func (p *processes) mayBeDead(n *cluster.Node) bool {
	p.mu.Lock()
	toDie := slices.Contains(p.toDie, n.Name())
	p.mu.Unlock()
	return toDie || p.faults.Killed(n)
}

// stop sends stop to every node of a role and waits until their streams have ended.
func (p *processes) stop(ctx context.Context, role node.Role) error {
	var g errgroup.Group
	for _, s := range p.all {
		if s.node.Role() == role && s.node.Process.Running() {
			g.Go(func() error {
				err := s.stop(ctx)
				if err != nil {
					recordHung(p.record, s)
				}
				return err
			})
		}
	}
	return g.Wait()
}

// recordHung records that a client did not end though it was told to, and that its process lives and is not stopped:
// what it was asked for until now has not returned.
func recordHung(r *rundir.Dir, s *process) {
	ctx, cancel := context.WithTimeout(context.Background(), readingTimeout)
	defer cancel()
	now := clock.Now()
	state, err := s.node.Signals.Inspect(ctx)
	if err != nil || state.Gone() || state.Stopped() {
		return
	}
	r.Change(func(e *results.Env) { e.Hung = append(e.Hung, results.Hung{Name: s.node.Name(), Until: now}) })
}

// collect closes the histories of all nodes and records what they reported of themselves. All share the time that a
// stream may take to end.
func (p *processes) collect(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	var ended []*process
	for _, s := range p.all {
		if !s.endedBy(ctx) {
			p.record.Unknown("%s: its stream did not end", s.node.Name())
			_ = s.conn.Close() // what comes of it is too late
			continue
		}
		if err := s.close(); err != nil {
			p.record.Unknown("%s: history: %v", s.node.Name(), err)
		}
		ended = append(ended, s)
	}
	close(p.over)
	p.deaths.Wait() // then it is known who was seen dead
	p.dateDeaths()
	for _, s := range ended {
		p.addStats(s)
	}
}

// leftBehind tells what was ended with the processes of the nodes. A pass beside it stands: it took part in nothing
// that was judged.
func leftBehind(nodes []*cluster.Node) (told []string) {
	for _, n := range nodes {
		for _, what := range n.Process.LeftBehind() {
			told = append(told, "when "+n.Name()+" ended, "+what)
		}
	}
	return told
}

// addStats notes what a node reported at its end. One that ended unasked and without a report is lost, and may have
// lost events.
func (p *processes) addStats(s *process) {
	d, dies := s.finished(), p.mayBeDead(s.node)
	st := results.ClientStats{Name: s.node.Name(), Dead: dies, Lost: !dies}
	if st.Lost {
		st.Recorded, _ = s.heard()
		if s.died {
			st.Ended = s.node.Process.Ended()
		}
	}
	if d != nil {
		st = results.ClientStats{
			Name: s.node.Name(), Recorded: d.Recorded, Dropped: d.Dropped, Stall: d.Stall, Cycles: d.Cycles, Lag: d.Lag,
			CPU: d.CPU, Unstarted: d.Unstarted, Errors: d.Errors,
		}
	}
	if err := s.refusal(); err != nil {
		p.record.Unknown("%v", err)
	} else if err := s.failure(); err != nil && !dies {
		p.record.Unknown("%v", err)
	}
	p.addProgram(&st, s)
	p.record.Change(func(e *results.Env) { e.Clients = append(e.Clients, st) })
}

// addProgram notes what program a node is. Lockquake's own client names the modules of all locks; only those of this
// run's lock count.
func (p *processes) addProgram(st *results.ClientStats, s *process) {
	h := s.greeting()
	if h == nil {
		return
	}
	own := strings.HasPrefix(h.Process, wire.ProcessOwn)
	if s.index >= 0 {
		own = h.Process == wire.ProcessClient
	}
	st.Process, st.Software, st.Libraries, st.Foreign = h.Process, h.Software, maps.Clone(h.Libraries), !own
	st.Tells = !own && h.Tells
	if own && p.options.ClientModules != nil {
		used := p.options.ClientModules(p.plan.Backend.Name, p.plan.Lock.Name)
		maps.DeleteFunc(st.Libraries, func(module, _ string) bool { return !slices.Contains(used, module) })
	}
	if h.Process == "" {
		p.record.Unknown("%s does not say in its hello what program it is (process): nobody can tell who was judged",
			st.Name)
	}
	if s.index >= 0 {
		if other := p.plan.Programs.Of(s.index).OtherVersions(h); other != "" {
			p.record.Unknown("%s is not what was asked for: %s", st.Name, other)
		}
	}
}

// readingTimeout bounds a reading. A node that does not answer in time is left out, and what depends on it is not
// judged.
const readingTimeout = 2 * time.Second

// takeReading asks the servers how many requests they had, the clients how often they were woken, and how much
// processor time each node has used. It is called before the workload begins and before it is stopped: at the stop
// every waiter leaves its queue, which costs as much as many handoffs do. A run of steps alone has no reading: the
// engine's own questions would be most of it.
func (p *processes) takeReading(ctx context.Context) {
	if p.plan.Workload == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	began, machine := clock.Now(), machineCPU()
	var counted results.Reading
	var syncs map[string]results.Syncs
	woken, used := map[string]int64{}, map[string]int64{history.Engine: wire.CPU()}
	var mu sync.Mutex
	var group sync.WaitGroup
	group.Go(func() { counted = p.counters.read(ctx) })
	if c, ok := p.nodes.Service.(topology.SyncTimer); ok {
		group.Go(func() { syncs = syncsOf(c.Syncs(ctx)) })
	}
	for _, n := range p.nodes.Cluster.Nodes {
		group.Go(func() {
			if ns, err := n.Process.CPU(ctx); err == nil {
				mu.Lock()
				defer mu.Unlock()
				used[n.Name()] = int64(ns)
			}
		})
	}
	for _, s := range p.clients() {
		group.Go(func() {
			res, err := s.ask(ctx, wire.Command{Do: wire.DoNotifications})
			if err == nil && res.Outcome == wire.OutcomeOK {
				mu.Lock()
				defer mu.Unlock()
				woken[s.node.Name()] = res.Count
			}
		})
	}
	group.Wait()
	counted.Time, counted.Machine, counted.Notifications, counted.CPU, counted.Syncs = (began+clock.Now())/2,
		(machine+machineCPU())/2, woken, used, syncs
	p.record.Change(func(e *results.Env) { e.Readings = append(e.Readings, counted) })
}

// syncsOf is what servers said of their disks, as env.json has it.
func syncsOf(said map[string]topology.Syncs) map[string]results.Syncs {
	out := map[string]results.Syncs{}
	for name, s := range said {
		out[name] = results.Syncs{N: s.N, NS: int64(s.Took)}
	}
	return out
}

// finalRead asks the resource for the value of every lock and writes it into the history.
func (p *processes) finalRead(ctx context.Context) error {
	if p.plan.Resource == nil {
		return nil
	}
	for i := range p.plan.Locks {
		res, err := p.finalOf(ctx, i)
		if err != nil {
			return err
		}
		e := history.Event{
			Kind: history.Final, Phase: history.Info, Lock: uint16(i), Value: res.Value,
			Valid: res.Count,
		}
		p.own.Add(e)
	}
	return nil
}

// finalOf asks for what one lock protects. A majority of the replicas must answer; the latest value of theirs counts.
func (p *processes) finalOf(ctx context.Context, lock int) (best wire.Result, err error) {
	all, answers := 0, 0
	var errs []error
	for _, s := range p.resources() {
		all++
		res, err := s.ask(ctx, wire.Command{Do: wire.DoFinal, Lock: lock})
		if err == nil && res.Outcome != wire.OutcomeOK {
			err = fmt.Errorf("%s of %s: %s", res.Outcome, p.plan.Locks[lock], res.Error)
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
