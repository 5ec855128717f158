package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/seed"
)

// maxMisses is how often a holder may begin its release before it is stopped, until an injection gives up.
const maxMisses = 20

// injector makes injections and heals them.
type injector struct {
	plan      *plan.Plan
	nodes     *deployment.Nodes
	processes *control.Processes
	counters  deployment.Counters
	live      *live.Table
	faults    *rundir.Faults
	record    *rundir.Dir
	reporter  *reporter

	heals      *chaos.Stack     // of the faults
	stops      *chaos.Stack     // of the stops that aim at a holder
	linkFaults chaos.LinkFaults // which link faults are active where
	leads      leads
}

// inject resolves the target and injects the fault. It returns the record, complete except for the heal. If the
// injection fails, its receipt says so.
func (in *injector) inject(ctx context.Context, d plan.Due, planned int64) *rundir.Injected {
	f := in.faults.Add(d, planned)
	var receipt history.Receipt
	var err error
	if name, ok := f.Inj.Selector.Holder(); ok {
		receipt, err = in.injectHolder(ctx, f, name)
	} else {
		receipt, err = in.injectNodes(ctx, f)
	}
	if err != nil {
		if receipt.Status == "" || receipt.Status == history.Installed {
			receipt.Status = history.NotInstalled
		}
		receipt.Evidence = strings.TrimPrefix(receipt.Evidence+"; ", "; ") + err.Error()
	}
	if receipt.Time == 0 {
		receipt.Time = clock.Now()
	}
	in.faults.Change(func() {
		f.Receipt = receipt
		if receipt.Status == history.Installed && f.Bit == 0 {
			f.Bit = receipt.Time
		}
	})
	in.faults.Write()
	in.reporter.tell(fmt.Sprintf("%s on %s: %s", f.Name, f.Target, receipt.Status))
	if !f.Inj.Kind.Lasts(f.Inj.Fault) {
		in.heal(f, 0) // it is over: nothing is active until the end
	}
	return f
}

// target records what a selector resolved to.
func (in *injector) target(f *rundir.Injected, nodes []chaos.Node, text string) {
	in.faults.Change(func() {
		f.Targets = nodeNames(nodes)
		f.Target = strings.Join(f.Targets, ", ")
		if text != "" {
			f.Target += " (" + text + ")"
		}
		f.Start = clock.Now()
	})
}

func (in *injector) injectNodes(ctx context.Context, f *rundir.Injected) (history.Receipt, error) {
	nodes, err := f.Inj.Selector.Resolve(ctx, in.nodes.View(fmt.Sprintf("selector-%d", f.ID)))
	if err != nil {
		return history.Receipt{Status: history.NotInstalled}, err
	}
	in.target(f, nodes, "")
	limit := chaos.Limit(nodes)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	ctx, acts := clock.WithActs(ctx)
	scope, err := in.scope(ctx, f, nodes)
	if err != nil {
		return history.Receipt{Status: history.NotInstalled}, err
	}
	if why := in.promised(f, scope); why != "" {
		return history.Receipt{Status: history.NotMade, Evidence: why}, nil
	}
	from, asked := clock.Now(), clock.Waits(ctx, questionTime)
	if hit := serversHit(scope); f.Inj.Kind.Kills && len(hit) > 0 {
		in.counters.ReadBeforeKill(ctx)
		shard := chaos.AskShard(ctx, scope.Service, hit, in.plan.Locks)
		in.faults.Change(func() { f.Shard = shard })
	}
	in.leads.follow(ctx, f, scope)
	asked()
	heal, receipt, err := f.Inj.Fault.Inject(ctx, scope)
	in.heals.Push(f.ID, heal, limit)
	in.timed(f, &receipt, acts, from)
	return receipt, err
}

// timed records when an injection into targets known at ns from was carried out, and how long it was measured since.
func (in *injector) timed(f *rundir.Injected, receipt *history.Receipt, acts *clock.Acts, from int64) {
	receipt.Done, receipt.Slip = acts.Done(), acts.Late(from)
	in.faults.Change(func() { f.Waited, f.Over = acts.Measured() })
}

// questionTime is how long servers may take to answer questions before an injection.
const questionTime = time.Second

// injectHolder stops the client of a user that was just granted the lock, and reads its stream to the end. If the
// user still held the grant, it injects the fault. A holder that had begun to release is a miss: it is continued and
// counted, and the next grant is tried.
func (in *injector) injectHolder(ctx context.Context, f *rundir.Injected, name string) (history.Receipt, error) {
	number := -1
	if name != "" {
		if number = slices.Index(in.plan.Locks, name); number < 0 {
			return history.Receipt{Status: history.NotInstalled}, fmt.Errorf("there is no lock %q", name)
		}
	}
	next := func() (live.Hold, error) { return in.live.GrantAfter(ctx, clock.Now(), number) }
	switch {
	case in.plan.Workload == nil: // whenever it began: such runs have few grants
		next = func() (live.Hold, error) { return in.live.GrantAfter(ctx, 0, number) }
	case f.Inj.Held > 0:
		next = func() (live.Hold, error) { return in.live.HeldFor(ctx, number, f.Inj.Held) }
	}
	for f.Misses < maxMisses {
		h, err := next()
		if err != nil {
			return history.Receipt{Status: history.NotInstalled}, fmt.Errorf("no holder appeared: %w", err)
		}
		receipt, held, err := in.injectOn(ctx, f, h)
		if held || err != nil {
			return receipt, err
		}
		in.faults.Change(func() { f.Misses++ })
	}
	return history.Receipt{Status: history.NotInstalled},
		fmt.Errorf("%d successive holders had begun to release before they were stopped", f.Misses)
}

// injectOn is one attempt on one holder. held reports whether it still had the grant when it was stopped. The stop
// has its own heal, which stays on the stack until it is done, whatever fails.
func (in *injector) injectOn(ctx context.Context, f *rundir.Injected, h live.Hold) (receipt history.Receipt, held bool,
	err error,
) {
	node := in.processes.All[h.User.Client()].Node
	in.faults.Change(func() { f.Grant, f.User, f.Lock = h.Grant, &h.User, in.plan.Locks[h.Lock] })
	in.target(f, []chaos.Node{node}, fmt.Sprintf("user %d, %s", h.User.Index(), f.Lock))
	from := clock.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chaos.Timeout)
	defer cancel()
	ctx, acts := clock.WithActs(ctx)
	in.stops.Push(f.ID, resume(node), chaos.Timeout)
	state, err := node.Signals.Pause(ctx)
	var silent time.Duration
	if err == nil {
		held, silent, err = in.live.Keeps(ctx, h.User, h.Grant)
	}
	if err != nil {
		return history.Receipt{Status: history.Indeterminate}, false, errors.Join(err, in.continueHolder(f))
	}
	if !held {
		return history.Receipt{}, false, in.continueHolder(f)
	}
	in.faults.Change(func() { f.Bit, f.BitError = state.Time, state.TimeError })
	scope, err := in.scope(ctx, f, []chaos.Node{node})
	if err != nil {
		return history.Receipt{Status: history.NotInstalled}, false, errors.Join(err, in.continueHolder(f))
	}
	if why := in.promised(f, scope); why != "" {
		in.faults.Change(func() { f.Bit, f.BitError = 0, 0 })
		return history.Receipt{Status: history.NotMade, Evidence: why}, true, in.continueHolder(f)
	}
	scope.Run = &underway{injector: in, fault: f, stopped: true}
	heal, receipt, err := f.Inj.Fault.Inject(ctx, scope)
	in.heals.Push(f.ID, heal, chaos.Timeout) // a client is never started again
	in.timed(f, &receipt, acts, from)
	// A fault that stops the target keeps it stopped: the node counts its pauses.
	err = errors.Join(err, in.continueHolder(f))
	receipt.Evidence += fmt.Sprintf("; %v held %s by grant %d when it was stopped (%v), and its stream was silent for %v after", h.User, f.Lock, h.Grant, state, silent)
	return receipt, true, err
}

// resume returns the heal of a stop that aimed at a holder.
func resume(n *cluster.Node) chaos.Heal {
	return func(ctx context.Context) (history.Receipt, error) {
		if !n.Process.Running() {
			return history.Receipt{}, nil
		}
		_, err := n.Signals.Resume(ctx)
		return history.Receipt{}, err
	}
}

// continueHolder undoes the stop that aimed at a holder.
func (in *injector) continueHolder(f *rundir.Injected) error {
	_, err, _ := in.stops.Heal(context.Background(), f.ID)
	return err
}

// promised returns why an injection would break the schedule's promise, or "": then it counts as active until it is
// healed. If its heal fails, it stays active to the end of the run.
func (in *injector) promised(f *rundir.Injected, s chaos.Scope) string {
	p := in.plan
	if p.Promise.None() {
		return ""
	}
	servers := p.Specs.Of(node.Server)
	reach := chaos.NewReach(nodeNames(s.On), nodeNames(s.Peers), servers, p.Specs.Of(node.Client))
	return in.faults.Admit(f, p.Promise, servers, reach)
}

// scope returns where an injection goes, with the other ends of its links as they are now.
func (in *injector) scope(ctx context.Context, f *rundir.Injected, on []chaos.Node) (chaos.Scope, error) {
	s := chaos.Scope{
		On: on, Service: control.Clocks{Nodes: in.nodes, Processes: in.processes},
		Seed:       seed.Split(in.plan.Scenario.Run.Seed, fmt.Sprintf("fault-%d", f.ID)),
		LinkFaults: &in.linkFaults, Run: &underway{injector: in, fault: f},
	}
	for _, n := range in.nodes.Cluster.ByRole(node.Server) {
		s.Servers = append(s.Servers, n.Name())
	}
	s.Role, _ = f.Inj.Selector.Leader(in.nodes.Service)
	if len(f.Inj.Far.Parts()) == 0 {
		return s, nil
	}
	draws := f.Inj.Draws
	if draws == "" {
		draws = fmt.Sprintf("peers-%d", f.ID)
	}
	view := in.nodes.View(draws)
	view.Except = on
	var err error
	if s.Peers, err = f.Inj.Far.Resolve(ctx, view); err != nil {
		return s, fmt.Errorf("the other end of the links: %w", err)
	}
	in.faults.Change(func() { f.Peers = nodeNames(s.Peers) })
	return s, nil
}

// awaitBitten waits until an injection has met a packet since its receipt.
func (in *injector) awaitBitten(ctx context.Context, f *rundir.Injected) error {
	var counted *chaos.Counted
	in.faults.Change(func() { counted = f.Counter })
	if counted == nil {
		return fmt.Errorf("%s on %s counts no packets", f.Name, f.Target)
	}
	for {
		n, err := counted.Packets(ctx)
		if err == nil && n > 0 {
			return nil
		}
		if serr := clock.Sleep(ctx, 5*time.Millisecond); serr != nil {
			if err != nil {
				return fmt.Errorf("%w; its packets cannot be counted: %w", serr, err)
			}
			return fmt.Errorf("%w; it has matched no packet", serr)
		}
	}
}

// heal heals one injection, once, and records the receipt. It was due at ns due; 0 means that it had no planned time.
func (in *injector) heal(f *rundir.Injected, due int64) {
	begun := clock.Now()
	ctx, acts := clock.WithActs(context.Background())
	receipt, err, ok := in.heals.Heal(ctx, f.ID)
	if ok {
		if receipt.Done = acts.Done(); due != 0 {
			receipt.Slip = acts.Late(due)
		}
		in.healed(f, begun, receipt, err)
	}
}

// healed records the receipt of a heal that began at ns begun.
func (in *injector) healed(f *rundir.Injected, begun int64, receipt history.Receipt, err error) {
	if err != nil {
		receipt.Status = history.NotInstalled
		receipt.Evidence = strings.TrimPrefix(receipt.Evidence+"; ", "; ") + err.Error()
		in.record.Unknown("heal of %s on %s: %v", f.Name, f.Target, err)
	}
	in.faults.Change(func() {
		f.Healed, f.Undo, f.End = &receipt, begun, clock.Now()
		if err == nil {
			f.Reach = nil
		}
	})
	in.leads.healed(f)
	in.faults.Write()
	in.reporter.tell(fmt.Sprintf("%s on %s: healed", f.Name, f.Target))
}

func (in *injector) healAll(ctx context.Context) {
	begun := clock.Now()
	for _, h := range in.stops.HealAll(ctx) {
		if h.Err != nil {
			in.record.Unknown("continuing a stopped holder: %v", h.Err)
		}
	}
	for _, h := range in.heals.HealAll(ctx) {
		in.healed(in.faults.Of(h.ID), begun, h.Receipt, h.Err)
	}
}

// leaveOut records an injection whose turn did not come in time.
func (in *injector) leaveOut(d plan.Due, why string) {
	f := in.faults.Add(d, in.record.Start()+int64(d.At))
	in.faults.Change(func() { f.Receipt = history.Receipt{Status: history.NotMade, Evidence: why, Time: clock.Now()} })
	in.faults.Write()
}

// serversHit returns the servers among the targets.
func serversHit(s chaos.Scope) []string {
	return slices.DeleteFunc(nodeNames(s.On), func(name string) bool { return !slices.Contains(s.Servers, name) })
}

// underway is the run as seen by the fault of one injection.
type underway struct {
	injector *injector
	fault    *rundir.Injected
	stopped  bool // the target was stopped in order to aim
}

func (u *underway) Others() int { return u.injector.heals.Others(u.fault.ID) }

func (u *underway) Stopped() bool { return u.stopped }

func (u *underway) Continue() error { return u.injector.continueHolder(u.fault) }

func (u *underway) Follow(l *chaos.Lead) { u.injector.faults.Change(func() { u.fault.Follows = l }) }

func (u *underway) Counts(c chaos.Counted) { u.injector.faults.Change(func() { u.fault.Counter = &c }) }

func nodeNames(nodes []chaos.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name())
	}
	return out
}
