package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/scenarios"
)

// due is one injection of the schedule.
type due struct {
	at, lasts time.Duration // since the workload was let go; lasts 0: until the end
	inj       injection
}

// checkChaos reads the schedule, or draws it.
func (p *Plan) checkChaos(o Options) error {
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
		return p.checkRandom(o)
	}
	var entries []chaos.Entry
	for i, in := range p.scenario.Chaos {
		inj, err := p.scheduled(o, i)
		if err != nil {
			return err
		}
		p.injections = append(p.injections, inj)
		entry := chaos.Entry{At: in.At, For: in.For, Every: in.Every, Jitter: in.Jitter}
		if err := inj.kind.Fits(entry); err != nil {
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
		inj, err := p.scheduled(o, x.Entry)
		if err != nil {
			return err
		}
		sel := inj.selector.Settle(p.namesOf(cluster.Server), seed.Rand(p.scenario.Run.Seed, fmt.Sprintf("selector-%d", i+1)))
		inj.settle(i+1, sel, x.At.String())
		p.schedule = append(p.schedule, due{at: x.At, lasts: x.For, inj: inj})
	}
	return nil
}

// scheduled makes the injection of an entry of the scenario's list.
func (p *Plan) scheduled(o Options, i int) (injection, error) {
	in := p.scenario.Chaos[i]
	inj, err := p.injection(o, asked{path: in.Path, key: "use", use: in.Use, on: in.On, params: in.Params})
	inj.entry = i + 1
	return inj, err
}

// possible refuses a target on which no injection could ever keep what the schedule promises. Whom a link fault hits is known
// only when its other ends are.
func (p *Plan) possible(inj injection, path string) error {
	if _, linked := inj.fault.(chaos.Linked); linked {
		return nil
	}
	if why := p.promise.Never(inj.selector, p.namesOf(cluster.Server), seed.Rand(1, path)); why != "" {
		return p.wrong(path, "%s on %s can never be made with spare: %s: %s", inj.kind.Name, inj.on, scenarios.SpareMajority, why)
	}
	return nil
}

// asked is a fault as the scenario names it.
type asked struct {
	path   string // of the entry or step
	key    string // under which the fault's name stands there
	use    string
	on     string
	params scenarios.Params
}

func (p *Plan) injection(o Options, a asked) (injection, error) {
	i := slices.IndexFunc(o.Catalog.Faults, func(k chaos.Kind) bool { return k.Name == a.use })
	if i < 0 {
		return injection{}, p.wrong(a.path+"."+a.key, "there is no fault %q; there are %s", a.use, names(o.Catalog.Faults, func(k chaos.Kind) string { return k.Name }))
	}
	inj := injection{kind: o.Catalog.Faults[i], on: a.on, params: a.params.String(), own: a.params}
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
func (p *Plan) target(on string) (chaos.Selector, error) {
	return chaos.ParseSelector(strings.Join(p.nodesOf(strings.Split(on, ",")), ","), p.nodeNames())
}

// aim says why a fault on a target can never be made as it stands, or "".
func (p *Plan) aim(k chaos.Kind, on chaos.Selector) string {
	return k.Aim(on, p.topology.Service(nil), p.namesOf(cluster.Server), p.namesOf(cluster.Client))
}

// checkServers refuses a target that may be no server, where only servers can be targets.
func (p *Plan) checkServers(inj injection) error {
	for _, s := range p.picks(inj.selector) {
		if inj.kind.Servers && s.Role != cluster.Server {
			return fmt.Errorf("%s may hit %s, a %s, and is for servers only", inj.kind.Name, s.Name, s.Role)
		}
	}
	return nil
}

func stepPath(i int, key string) string { return fmt.Sprintf("steps.%d.%s", i, key) }

func (p *Plan) checkSteps(o Options) error {
	for i, st := range p.scenario.Steps {
		switch {
		case st.Inject != "":
			inj, err := p.injection(o, asked{path: fmt.Sprintf("steps.%d", i), key: "inject", use: st.Inject, on: st.On, params: st.Params})
			if err != nil {
				return err
			}
			inj.as, inj.entry = st.As, i+1
			p.stepFaults[i] = inj
		case st.Await != "" && st.User != "" && !slices.Contains(p.people, st.User):
			return p.wrong(stepPath(i, "user"), "nobody called %q does anything in these steps; there are %s", st.User, strings.Join(p.people, ", "))
		case st.Await == "fact":
			if err := errors.Join(p.checkNode(i, "node", st.Node), p.checkFact(i, "fact", st.Fact)); err != nil {
				return err
			}
		case st.Observe != "":
			for n := range strings.SplitSeq(st.On, ",") {
				if err := p.checkNode(i, "on", strings.TrimSpace(n)); err != nil {
					return err
				}
				p.observed[i] = append(p.observed[i], strings.TrimSpace(n))
			}
			if err := p.checkFact(i, "observe", st.Observe); err != nil {
				return err
			}
		case st.Await == "bitten":
			if err := p.checkBitten(i, st); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Plan) checkBitten(i int, st scenarios.Step) error {
	for _, inj := range p.stepFaults {
		if inj.as == st.Of && !inj.kind.Counts {
			return p.wrong(stepPath(i, "of"), "%s counts no packets that could be awaited", inj.kind.Name)
		}
	}
	return nil
}

// checkNode refuses a node that the run does not have; key is the step's that names it.
func (p *Plan) checkNode(i int, key, node string) error {
	if !slices.Contains(p.nodeNames(), node) {
		return p.wrong(stepPath(i, key), "there is no node %q; there are %s", node, strings.Join(p.nodeNames(), ", "))
	}
	return nil
}

// checkFact refuses a fact that the service does not know; key is the step's that names it.
func (p *Plan) checkFact(i int, key, fact string) error {
	known := slices.Sorted(maps.Keys(p.topology.Service(nil).Facts()))
	// A fact such as "holder:LOCK" is asked for with a lock's name in the place of the word.
	if !slices.ContainsFunc(known, func(f string) bool {
		prefix, named := strings.CutSuffix(f, "LOCK")
		return f == fact || named && strings.HasPrefix(fact, prefix)
	}) {
		return p.wrong(stepPath(i, key), "%s cannot be asked for %q; it answers %s", p.backend.Name, fact, strings.Join(known, ", "))
	}
	return nil
}

// checkDelivery asks the provider, before anything starts, for every capability that the scenario's faults and limits
// need.
func (p *Plan) checkDelivery(o Options) error {
	for _, s := range p.specs {
		if s.Limits.None() {
			continue
		}
		if err := o.Provider.Offers(cluster.CanLimit, s.Role); err != nil {
			return MissingError{Text: fmt.Sprintf("%s: %s cannot be limited to %v by provider %s: %v; `lockquake doctor` tells more",
				p.scenario.Name, s.Name, s.Limits, o.Provider.Name(), err)}
		}
		break // what holds for one node holds for all
	}
	for _, inj := range p.allInjections() {
		if err := p.deliverable(o.Provider, inj); err != nil {
			return p.undeliverable(o, inj, err)
		}
	}
	return nil
}

func (p *Plan) deliverable(provider cluster.Provider, inj injection) error {
	if w, ok := inj.fault.(chaos.Wanting); ok {
		if err := w.Wants(p.topology.Service(nil)); err != nil {
			return err
		}
	}
	needs := slices.Clone(inj.needs())
	if _, ok := inj.selector.Holder(); ok {
		needs = append(needs, chaos.CanPause) // a holder is stopped first, so that it cannot slip away
	}
	var errs []error
	offered := func(needs []chaos.Capability, sel chaos.Selector) {
		for _, role := range p.roles(sel) {
			for _, c := range needs {
				errs = append(errs, provider.Offers(c, role))
			}
		}
	}
	offered(needs, inj.selector)
	offered(inj.kind.PeerNeeds, inj.far)
	return errors.Join(errs...)
}

// roles returns the roles of the nodes that a selector may pick.
func (p *Plan) roles(sel chaos.Selector) []cluster.Role {
	var out []cluster.Role
	for _, s := range p.picks(sel) {
		if !slices.Contains(out, s.Role) {
			out = append(out, s.Role)
		}
	}
	return out
}
