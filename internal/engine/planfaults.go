package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/scenarios"
)

// due is one injection of the schedule.
type due struct {
	at, lasts time.Duration // since the workload was let go; lasts 0: until the end
	inj       injection
}

// injection is a fault ready to be injected.
type injection struct {
	entry    int // index of the scenario's chaos entry or step, from 1
	kind     chaos.Kind
	fault    chaos.Fault
	selector chaos.Selector
	far      chaos.Selector // the other ends of a link fault; empty for other faults
	on       string
	as       string
	params   string
	own      scenarios.Params // the same, to be written down
	place    int              // in the schedule, from 1; 0: none
	draws    string           // names the stream that the other ends are drawn from
	held     time.Duration    // how long a holder must have held its lock
}

// needs lists the capabilities that the injection needs of its targets.
func (i injection) needs() []chaos.Capability { return i.kind.NeedsOf(i.fault) }

// settle makes the random picks of an injection's targets, so that they can be written down.
func (i *injection) settle(place int, sel chaos.Selector, draws string) {
	i.place, i.selector, i.draws = place, sel, "peers-at-"+draws
}

// faultPlanner makes the injections of the schedule and of the steps.
type faultPlanner struct{ planner }

// checkChaos reads the schedule, or draws it.
func (p faultPlanner) checkChaos() error {
	p.promise = chaos.Promise{
		Apart: p.scenario.Overlap == scenarios.OverlapOtherNodes, Serial: p.scenario.Overlap == scenarios.OverlapNever,
		Majority: p.scenario.Spare == scenarios.SpareMajority,
	}
	if len(p.scenario.Chaos) == 0 && p.scenario.Random == nil {
		return nil
	}
	if p.workload == nil {
		return p.wrong("chaos", "a schedule needs a workload; with steps alone, inject by a step")
	}
	if p.scenario.Random != nil {
		return p.checkRandom()
	}
	var entries []chaos.Entry
	for i, in := range p.scenario.Chaos {
		inj, err := p.scheduled(i)
		if err != nil {
			return err
		}
		p.injections = append(p.injections, inj)
		entry := chaos.Entry{At: in.At, For: in.For, Every: in.Every, Jitter: in.Jitter}
		if err := inj.kind.Fits(inj.fault, entry); err != nil {
			return p.place(in.Path, err)
		}
		if err := p.possible(inj, in.Path+".on"); err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	plan, err := chaos.Plan(entries, p.scenario.Run.For, p.scenario.Run.Seed)
	if err != nil {
		return p.place("chaos", err)
	}
	for i, x := range plan {
		inj, err := p.scheduled(x.Entry)
		if err != nil {
			return err
		}
		sel := inj.selector.Settle(p.namesOf(node.Server),
			seed.Rand(p.scenario.Run.Seed, fmt.Sprintf("selector-%d", i+1)))
		inj.settle(i+1, sel, x.At.String())
		p.schedule = append(p.schedule, due{at: x.At, lasts: x.For, inj: inj})
	}
	return nil
}

// scheduled makes the injection of an entry of the scenario's list.
func (p faultPlanner) scheduled(i int) (injection, error) {
	in := p.scenario.Chaos[i]
	inj, err := p.injection(faultKeys{path: in.Path, key: "use", use: in.Use, on: in.On, params: in.Params})
	inj.entry, inj.held = i+1, in.Held
	if _, holder := inj.selector.Holder(); err == nil && in.Held > 0 && !holder {
		err = p.wrong(in.Path+".held", "only a holder has held a lock for %v; this is on %s", in.Held, in.On)
	}
	return inj, err
}

// possible refuses a target on which every injection would break what the schedule promises. It cannot tell for link
// faults: their other ends are found when they are injected.
func (p faultPlanner) possible(inj injection, path string) error {
	if _, linked := inj.fault.(chaos.Linked); linked {
		return nil
	}
	if why := p.promise.Never(inj.selector, p.namesOf(node.Server), seed.Rand(1, path)); why != "" {
		return p.wrong(path, "%s on %s can never be made with spare: %s: %s", inj.kind.Name, inj.on,
			scenarios.SpareMajority, why)
	}
	return nil
}

// faultKeys is a fault as the scenario names it.
type faultKeys struct {
	path   string // of the entry or step
	key    string // under which the fault's name stands there
	use    string
	on     string
	params scenarios.Params
}

func (p faultPlanner) injection(a faultKeys) (injection, error) {
	kind, ok := chaos.Lookup(p.Catalog.Faults, a.use)
	if !ok {
		return injection{}, p.wrong(a.path+"."+a.key, "there is no fault %q; there are %s", a.use,
			names(p.Catalog.Faults, func(k chaos.Kind) string { return k.Name }))
	}
	inj := injection{kind: kind, on: a.on, params: a.params.String(), own: a.params}
	var err error
	if inj.fault, err = inj.kind.New(a.params.Decode); err != nil {
		return injection{}, p.place(a.path, err)
	}
	if inj.selector, err = p.target(a.on); err != nil {
		return injection{}, p.place(a.path+".on", err)
	}
	if err := p.checkServers(inj); err != nil {
		return injection{}, p.place(a.path+".on", err)
	}
	if why := p.aim(inj.kind, inj.selector); why != "" {
		return injection{}, p.wrong(a.path+".on", "%s", why)
	}
	if err := p.checkLinks(&inj); err != nil {
		return injection{}, p.place(a.path, err)
	}
	return inj, nil
}

// target reads a target.
func (p faultPlanner) target(on string) (chaos.Selector, error) {
	return chaos.ParseSelector(strings.Join(p.nodesOf(strings.Split(on, ",")), ","), p.nodeNames())
}

// nodesOf replaces the users that steps name by their clients.
func (p faultPlanner) nodesOf(names []string) []string {
	var out []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if k := slices.Index(p.stepUsers, name); k >= 0 {
			name = p.stepUserNode(k)
		}
		out = append(out, name)
	}
	return out
}

// aim says why a fault can never hit this target, or "".
func (p faultPlanner) aim(k chaos.Kind, on chaos.Selector) string {
	return k.Aim(on, p.topology.Service(nil), p.namesOf(node.Server), p.namesOf(node.Client))
}

// checkServers refuses a target that may pick another node than a server, for faults that are for servers only.
func (p faultPlanner) checkServers(inj injection) error {
	for _, s := range p.picks(inj.selector) {
		if inj.kind.Servers && s.Role != node.Server {
			return fmt.Errorf("%s may hit %s, a %s, and is for servers only", inj.kind.Name, s.Name, s.Role)
		}
	}
	return nil
}

// checkLinks reads the other end of a link fault, and checks that the ports that it names exist.
func (p faultPlanner) checkLinks(inj *injection) error {
	l, ok := inj.fault.(chaos.Linked)
	if !ok {
		return nil
	}
	var err error
	if inj.far, err = chaos.ParseFar(p.nodesOf(l.Far()), p.nodeNames()); err != nil {
		return err
	}
	own, far := l.Ports()
	if err := p.checkPort(own, inj.selector); err != nil {
		return err
	}
	return p.checkPort(far, inj.far)
}

// checkPort checks that all nodes that a selector may pick have a port of that name.
func (p faultPlanner) checkPort(port chaos.PortName, of chaos.Selector) error {
	if _, ok := port.Number(); ok || port == "" {
		return nil
	}
	for _, s := range p.picks(of) {
		if !slices.ContainsFunc(s.Ports, func(x node.Port) bool { return x.Name == string(port) }) {
			return fmt.Errorf("%s may be at that end of a link, and has no port %q; it has %s", s.Name, port,
				names(s.Ports, func(x node.Port) string { return x.Name }))
		}
	}
	return nil
}

// checkRandom checks everything that a random schedule may draw, and draws the schedule.
func (p faultPlanner) checkRandom() error {
	r := p.scenario.Random
	draw := chaos.Random{
		MeanGap: r.MeanGap, Promise: p.promise, Servers: p.namesOf(node.Server),
		Clients: p.namesOf(node.Client),
	}
	for i, f := range r.Faults {
		d, err := p.drawable(i, f)
		if err != nil {
			return err
		}
		draw.Faults = append(draw.Faults, d)
	}
	runSeed := p.scenario.Run.Seed
	drawn, err := draw.Draw(p.scenario.Run.For, max(runSeed, 1))
	if err != nil {
		return p.place("chaos", err)
	}
	if runSeed == 0 {
		return nil // it is drawn when the run has its seed
	}
	for n, x := range drawn {
		random := seed.Rand(runSeed, "chaos-params-"+strconv.Itoa(n))
		inj, err := p.randomInjection(x.Fault, x.Chosen.String(),
			func(last int64) int64 { return random.Int64N(last + 1) })
		if err != nil {
			return err
		}
		inj.settle(n+1, x.On, x.At.String())
		p.schedule = append(p.schedule, due{at: x.At, lasts: x.For, inj: inj})
	}
	return nil
}

func randomPath(i int) string { return fmt.Sprintf("chaos.random.%d", i) }

// drawable checks one fault that may be drawn: on each of its targets, with both ends of its ranges. So a scenario is
// refused whatever its seed.
func (p faultPlanner) drawable(i int, f scenarios.RandomFault) (chaos.Drawable, error) {
	out := chaos.Drawable{Shortest: f.For.Low, Longest: f.For.High}
	targets, err := p.fitting(f)
	if err != nil {
		return out, err
	}
	for _, on := range targets {
		for _, pick := range []func(int64) int64{
			func(int64) int64 { return 0 },
			func(last int64) int64 { return last },
		} {
			inj, err := p.randomInjection(i, on, pick)
			if err != nil {
				return out, err
			}
			p.injections = append(p.injections, inj)
		}
		inj := p.injections[len(p.injections)-1]
		if err := p.possible(inj, randomPath(i)+".on"); err != nil {
			return out, err
		}
		out.On, out.Lasting = append(out.On, inj.selector), inj.kind.Lasts(inj.fault)
		_, out.Linked = inj.fault.(chaos.Linked)
		if f.Timed && !out.Lasting {
			return out, p.place(randomPath(i)+".for", inj.kind.Fits(inj.fault, chaos.Entry{For: f.For.Low}))
		}
	}
	return out, nil
}

// fitting returns the targets that a fault may be drawn on: its own, or those of the whole schedule that it can hit.
func (p faultPlanner) fitting(f scenarios.RandomFault) ([]string, error) {
	k, known := chaos.Lookup(p.Catalog.Faults, f.Use)
	if f.Aimed || !known {
		return f.On, nil
	}
	var out []string
	why := ""
	for _, on := range f.On {
		sel, err := p.target(on)
		if err != nil {
			return nil, p.place("chaos.on", err)
		}
		if misses := p.aim(k, sel); misses != "" {
			why = misses
			continue
		}
		out = append(out, on)
	}
	if len(out) == 0 {
		return nil, p.wrong("chaos.on", "there is no target here for %s: %s", f.Use, why)
	}
	return out, nil
}

func (p faultPlanner) randomInjection(i int, on string, pick func(int64) int64) (injection, error) {
	f := p.scenario.Random.Faults[i]
	params := f.Params
	if k, ok := chaos.Lookup(p.Catalog.Faults, f.Use); ok && len(params.Keys()) == 0 && k.Sample != "" {
		var err error
		if params, err = scenarios.ParseParams(k.Sample); err != nil {
			return injection{}, fmt.Errorf("sample of %s: %w", k.Name, err)
		}
	}
	params, err := params.Settle(pick)
	if err != nil {
		return injection{}, err
	}
	inj, err := p.injection(faultKeys{path: randomPath(i), key: "use", use: f.Use, on: on, params: params})
	inj.entry = i + 1
	return inj, err
}

// stepPlanner checks that all that the steps name exists.
type stepPlanner struct{ faultPlanner }

func (p stepPlanner) check() error {
	for i, st := range p.scenario.Steps {
		switch {
		case st.Inject != "":
			inj, err := p.injection(faultKeys{
				path: fmt.Sprintf("steps.%d", i), key: "inject", use: st.Inject,
				on: st.On, params: st.Params,
			})
			if err != nil {
				return err
			}
			inj.as, inj.entry = st.As, i+1
			p.stepFaults[i] = inj
		case st.Await != "" && st.User != "" && !slices.Contains(p.stepUsers, st.User):
			return p.wrong(stepPath(i, "user"), "nobody called %q does anything in these steps; there are %s", st.User,
				strings.Join(p.stepUsers, ", "))
		case st.Await == "fact":
			if err := p.checkQuestion(i, "node", st.Node, "fact", st.Fact); err != nil {
				return err
			}
		case st.Observe != "":
			for n := range strings.SplitSeq(st.On, ",") {
				n = strings.TrimSpace(n)
				if err := p.checkQuestion(i, "on", n, "observe", st.Observe); err != nil {
					return err
				}
				p.observed[i] = append(p.observed[i], n)
			}
		case st.Of != "":
			if err := p.checkOf(i, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOf refuses to await of an injection what it can never tell.
func (p stepPlanner) checkOf(i int, st scenarios.Step) error {
	for _, inj := range p.stepFaults {
		if inj.as != st.Of {
			continue
		}
		if st.Await == "bitten" && !inj.kind.Counts {
			return p.wrong(stepPath(i, "of"), "%s counts no packets that could be awaited", inj.kind.Name)
		}
		if _, ok := inj.selector.Leader(p.topology.Service(nil)); st.Await == "led" && !ok {
			return p.wrong(stepPath(i, "of"), "%s is not on leader: nobody takes the lead after it", st.Of)
		}
	}
	return nil
}

// checkQuestion refuses what nobody can be asked; nodeKey and factKey are the step's that name the node and the fact.
func (p stepPlanner) checkQuestion(i int, nodeKey, node, factKey, fact string) error {
	if node != history.Service {
		return errors.Join(p.checkNode(i, nodeKey, node), p.checkFact(i, factKey, fact))
	}
	if _, ok := p.topology.Service(nil).(topology.Store); !ok {
		return p.wrong(stepPath(i, nodeKey), "%s does not say as a whole what it has of a lock", p.backend.Name)
	}
	if !strings.HasPrefix(fact, history.FactHolder) && !strings.HasPrefix(fact, history.FactKeys) {
		return p.wrong(stepPath(i, factKey), "the service as a whole cannot be asked for %q; it answers %sLOCK, %sLOCK",
			fact, history.FactHolder, history.FactKeys)
	}
	return nil
}

// checkNode refuses a node that the run does not have; key is the step's that names it.
func (p stepPlanner) checkNode(i int, key, node string) error {
	if !slices.Contains(p.nodeNames(), node) {
		return p.wrong(stepPath(i, key), "there is no node %q; there are %s", node, strings.Join(p.nodeNames(), ", "))
	}
	return nil
}

// checkFact refuses a fact that the service does not know; key is the step's that names it.
func (p stepPlanner) checkFact(i int, key, fact string) error {
	known := slices.Sorted(maps.Keys(p.topology.Service(nil).Facts()))
	// A fact "holder:LOCK" is asked for with the name of a lock: "holder:lock-0".
	if !slices.ContainsFunc(known, func(f string) bool {
		prefix, named := strings.CutSuffix(f, "LOCK")
		return f == fact || named && strings.HasPrefix(fact, prefix)
	}) {
		return p.wrong(stepPath(i, key), "%s cannot be asked for %q; it answers %s", p.backend.Name, fact,
			strings.Join(known, ", "))
	}
	return nil
}

func stepPath(i int, key string) string { return fmt.Sprintf("steps.%d.%s", i, key) }
