package control

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

// Processes holds the nodes with a control stream: the clients, and those nodes of the resource that have one.
type Processes struct {
	Plan     *plan.Plan
	Attached bool // the servers are external
	Counted  bool // grants are only counted, not recorded
	// Modules returns the modules that a client of a lock is made of; nil if unknown
	Modules func(backend, lock string) []string
	// Events gets the events of each client as they come; may be nil
	Events func(batch []history.Event)
	Nodes  *deployment.Nodes
	Live   *live.Table
	Watch  *watch.Sessions // nil if no grant lasts as long as a session
	Faults *rundir.Faults
	Dir    *rundir.Dir
	Clocks *watch.Measurer
	Own    *rundir.Journal
	All    []*Process // clients by index, then the resource

	deaths sync.WaitGroup // watchers of deaths, which may still write into the engine's history
	over   chan struct{}  // closed when streams are waited for no more; nil before one is opened

	mu    sync.Mutex
	toDie []string // clients whose user will die at a point
}

// Clients returns the clients.
func (p *Processes) Clients() []*Process {
	return slices.DeleteFunc(slices.Clone(p.All), func(s *Process) bool { return s.index < 0 })
}

// Resources returns the nodes of the resource.
func (p *Processes) Resources() []*Process {
	return slices.DeleteFunc(slices.Clone(p.All), func(s *Process) bool { return s.index >= 0 })
}

// Greet opens the control stream of every node that has one, and waits for its hello.
func (p *Processes) Greet(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v", within))
	defer cancel()
	p.over = make(chan struct{})
	index := 0
	for _, role := range []node.Role{node.Client, node.Resource} {
		for _, n := range p.Nodes.Cluster.ByRole(role) {
			if role == p.Nodes.Left {
				continue
			}
			if role == node.Resource && !speaks(p.Plan.Resource, n.Name()) {
				continue
			}
			i := -1
			if role == node.Client {
				i = index
				index++
			}
			p.All = append(p.All, openProcess(n, i, p))
		}
	}
	for _, s := range p.All {
		if err := s.await(ctx, s.greeted, "hello"); err != nil {
			return err
		}
		if p.Attached && s.index >= 0 {
			if err := checkOwn(s.greeting()); err != nil {
				return fmt.Errorf("%s: %w", s.Node.Name(), err)
			}
		}
		if s.index >= 0 {
			if err := plan.CheckAnnounced(p.Plan, s.Node.Name(), s.greeting()); err != nil {
				return err
			}
		}
		separate := p.Nodes.Cluster.SeparateClocks
		if err := p.Clocks.Meet(ctx, s.Clock, s.greeting(), s.Node.Process.Running, separate); err != nil {
			return err
		}
		if err := s.record(p.Dir.HistoryDir(), p.Plan); err != nil {
			return err
		}
	}
	return p.checkAlike()
}

// checkAlike rejects clients that should share one process id and report different ones.
func (p *Processes) checkAlike() error {
	if !p.Plan.Scenario.Workload.Alike {
		return nil
	}
	var first *Process
	for _, s := range p.Clients() {
		if first == nil {
			first = s
		}
		if a, b := first.greeting().PID, s.greeting().PID; a != b {
			return fmt.Errorf("workload.alike: %s is process %d, and %s %d", first.Node.Name(), a, s.Node.Name(), b)
		}
	}
	return nil
}

// checkOwn rejects external clients on an attached service: they may not keep to the prefix.
func checkOwn(h *wire.Hello) error {
	if h != nil && h.Process == wire.ProcessClient {
		return nil
	}
	return errors.New("it is not lockquake's own client, so it may ignore the prefix of an attached service")
}

// openProcess takes over the control stream of a running node.
func openProcess(n *cluster.Node, index int, p *Processes) *Process {
	s := newProcess(n, index, p.Live, wire.NewConn(n.Process.Stdio().Out, n.Process.Stdio().In))
	s.watch, s.told, s.log, s.directed = p.Watch, p.Events, p.Dir.Log.With("node", n.Name()),
		len(p.Plan.StepUsers) > 0
	go s.read()
	return s
}

// Start sends every node its start frame: the resource first, because clients connect to it.
func (p *Processes) Start(ctx context.Context, within time.Duration, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v", within))
	defer cancel()
	frames := StartFrames{Plan: p.Plan, Nodes: p.Nodes, Run: id, Records: !p.Counted}
	var errs []error
	for _, group := range [][]*Process{p.Resources(), p.Clients()} {
		for _, s := range group {
			st, err := frames.Of(s.Node, s.index)
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

// LetGo starts the workload at the given time of the run's clock.
func (p *Processes) LetGo(start int64) error {
	for _, s := range p.Clients() {
		if err := s.conn.Send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: s.Clock.Own(start)}}); err != nil {
			return fmt.Errorf("%s: go: %w", s.Node.Name(), err)
		}
	}
	return nil
}

// WatchDeaths begins to watch for clients that die.
func (p *Processes) WatchDeaths() {
	for _, s := range p.Clients() {
		p.deaths.Go(func() { p.watchDeath(s) })
	}
}

// watchDeath records the end of the holds of a client whose process was seen dead. If no death was seen, the ends are
// unknown: a client on a host that was cut off continues there.
func (p *Processes) watchDeath(s *Process) {
	select {
	case <-s.ended:
	case <-p.over:
		return
	}
	if s.finished() != nil {
		return
	}
	holds := p.Live.RemoveHolds(s.index)
	if !p.mayBeDead(s.Node) && !p.seenEnded(s.Node) {
		return
	}
	s.died = true
	_, last := s.heard()
	alive := max(last, p.Faults.KilledAt(s.Node.Name()))
	for _, h := range holds {
		e := history.Event{
			Kind: history.Dead, Phase: history.Info, User: h.User, Grant: h.Grant, Lock: h.Lock,
			Value: alive,
		}
		p.Own.Add(e)
		p.Live.Mark(e)
	}
}

// dateDeaths dates the deaths of clients killed by a fault to when their processes were seen gone: their streams may
// end a second later.
func (p *Processes) dateDeaths() {
	p.Own.Change(func(e *history.Event) {
		if e.Kind != history.Dead {
			return
		}
		if gone := p.Faults.GoneAt(p.All[e.User.Client()].Node.Name()); gone != 0 {
			e.Time = min(e.Time, max(gone, e.Value))
		}
	})
}

// seenWithin is how long after its control stream a process may be seen to end: longer than any engine takes to
// report it.
const seenWithin = 2 * time.Second

// seenEnded reports whether a node's process was seen to end around the end of its control stream.
func (p *Processes) seenEnded(n *cluster.Node) bool {
	late := time.NewTimer(seenWithin)
	defer late.Stop()
	select {
	case <-n.Process.Exited():
	case <-late.C:
	case <-p.over:
	}
	return n.Process.Ended() != ""
}

// WatchFailure ends the load if a node fails that no fault was meant to end.
func (p *Processes) WatchFailure(ctx context.Context) error {
	for clock.Sleep(ctx, 100*time.Millisecond) == nil {
		for _, s := range p.All {
			if err := s.failure(); err != nil && (s.refusal() != nil || !p.mayBeDead(s.Node)) {
				return err
			}
		}
		for _, n := range p.Nodes.Cluster.Nodes {
			if !n.Process.Running() && !p.mayBeDead(n) {
				if n.Process.Ended() == "" { // as on a host that was cut off
					return fmt.Errorf("%s is out of sight without a fault; the end of its process was not seen: it may have gone on", p.Nodes.Named(n))
				}
				return fmt.Errorf("%s ended without a fault", p.Nodes.Named(n))
			}
		}
	}
	return nil
}

// LeaveAlone closes the control streams of nodes that stay up: a client ends itself when its input ends.
func (p *Processes) LeaveAlone() {
	for _, s := range p.All {
		_ = s.conn.Close()
	}
}

// ExpectDeath notes that a node will die at a point.
func (p *Processes) ExpectDeath(n *cluster.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toDie = append(p.toDie, n.Name())
}

// mayBeDead reports whether a node was made to end: by a fault that kills and has not been healed, or by a point at
// which its user dies.
func (p *Processes) mayBeDead(n *cluster.Node) bool {
	p.mu.Lock()
	toDie := slices.Contains(p.toDie, n.Name())
	p.mu.Unlock()
	return toDie || p.Faults.Killed(n)
}

// Stop sends stop to every node of a role and waits until their streams have ended.
func (p *Processes) Stop(ctx context.Context, role node.Role) error {
	var g errgroup.Group
	for _, s := range p.All {
		if s.Node.Role() == role && s.Node.Process.Running() {
			g.Go(func() error {
				err := s.stop(ctx)
				if err != nil {
					recordHung(p.Dir, s)
				}
				return err
			})
		}
	}
	return g.Wait()
}

// recordHung records a client that did not end on a stop, although its process is alive and not stopped: its call
// under way has not returned.
func recordHung(r *rundir.Dir, s *Process) {
	ctx, cancel := context.WithTimeout(context.Background(), deployment.ReadingTimeout)
	defer cancel()
	now := clock.Now()
	state, err := s.Node.Signals.Inspect(ctx)
	if err != nil || state.Gone() || state.Stopped() {
		return
	}
	r.Change(func(e *results.Env) { e.Hung = append(e.Hung, results.Hung{Name: s.Node.Name(), Until: now}) })
}

// Collect closes the histories of all nodes and records what they reported about themselves. Their streams must end
// within the same time limit.
func (p *Processes) Collect(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	var ended []*Process
	for _, s := range p.All {
		if !s.endedBy(ctx) {
			p.Dir.Unknown("%s: its stream did not end", s.Node.Name())
			_ = s.conn.Close() // anything it still sends is too late
			continue
		}
		if err := s.close(); err != nil {
			p.Dir.Unknown("%s: history: %v", s.Node.Name(), err)
		}
		ended = append(ended, s)
	}
	if p.over != nil {
		close(p.over)
	}
	p.deaths.Wait() // after this, all seen deaths are known
	p.dateDeaths()
	for _, s := range ended {
		p.addStats(s)
	}
}

// LeftBehind says what was ended with the processes of the nodes. A pass remains a pass: what was left took no part
// in anything that was judged.
func LeftBehind(nodes []*cluster.Node) (told []string) {
	for _, n := range nodes {
		for _, what := range n.Process.LeftBehind() {
			told = append(told, "when "+n.Name()+" ended, "+what)
		}
	}
	return told
}

// addStats records a node's report at its end. A node that ended unasked and without a report is lost, and may have
// lost events.
func (p *Processes) addStats(s *Process) {
	d, dies := s.finished(), p.mayBeDead(s.Node)
	st := results.ClientStats{Name: s.Node.Name(), Dead: dies, Lost: !dies}
	if st.Lost {
		st.Recorded, _ = s.heard()
		if s.died {
			st.Ended = s.Node.Process.Ended()
		}
	}
	if d != nil {
		st = results.ClientStats{
			Name: s.Node.Name(), Recorded: d.Recorded, Dropped: d.Dropped, Stall: d.Stall, Cycles: d.Cycles, Lag: d.Lag,
			CPU: d.CPU, Unstarted: d.Unstarted, Errors: d.Errors,
		}
	}
	if err := s.refusal(); err != nil {
		p.Dir.Unknown("%v", err)
	} else if err := s.failure(); err != nil && !dies {
		p.Dir.Unknown("%v", err)
	}
	p.addProgram(&st, s)
	p.Dir.Change(func(e *results.Env) { e.Clients = append(e.Clients, st) })
}

// addProgram records which program a node is. Lockquake's own client names the modules of all locks; only those of
// this run's lock are kept.
func (p *Processes) addProgram(st *results.ClientStats, s *Process) {
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
	if own && p.Modules != nil {
		used := p.Modules(p.Plan.Backend.Name, p.Plan.Lock.Name)
		maps.DeleteFunc(st.Libraries, func(module, _ string) bool { return !slices.Contains(used, module) })
	}
	if h.Process == "" {
		p.Dir.Unknown("%s does not name its program in its hello (process): the judged client would be unnamed",
			st.Name)
	}
	if s.index >= 0 {
		if other := p.Plan.Programs.Of(s.index).OtherVersions(h); other != "" {
			p.Dir.Unknown("%s is not the requested program: %s", st.Name, other)
		}
	}
}
