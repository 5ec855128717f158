package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// Plan is a scenario with every name resolved and every parameter decoded: what Run will do.
type Plan struct {
	scenario scenarios.Scenario
	backend  backends.Backend
	lock     backends.Lock
	topology backends.Topology
	workload workloads.Workload // nil: steps only
	kind     workloads.Kind
	resource *Resource // nil: nothing is protected
	people   []string  // the users that steps name, in the order of their clients
	specs    []cluster.Spec
	locks    []string

	injections []injection       // by index of the scenario's chaos list
	schedule   []chaos.Planned   // what happens when
	stepFaults map[int]injection // by index of the scenario's steps
}

// injection is a fault ready to be injected.
type injection struct {
	kind     chaos.Kind
	fault    chaos.Fault
	selector chaos.Selector
	on       string
	as       string
	params   string
}

// Check resolves every name of the scenario and decodes every parameter, without starting anything. Its errors are
// UsageError and MissingError.
func Check(o Options) (*Plan, error) {
	p := &Plan{scenario: o.Scenario, stepFaults: map[int]injection{}}
	for _, check := range []func(Options) error{
		p.checkBackend, p.checkWorkload, p.checkResource, p.checkPeople, p.checkChaos, p.checkSteps, p.checkDelivery,
	} {
		if err := check(o); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Plan) usage(format string, args ...any) error {
	return UsageError{Text: p.scenario.Name + ": " + fmt.Sprintf(format, args...)}
}

func (p *Plan) checkBackend(o Options) error {
	s := p.scenario.Backend
	i := slices.IndexFunc(o.Catalog.Backends, func(b backends.Backend) bool { return b.Name == s.Use })
	if i < 0 {
		return p.usage("backend.use: there is no backend %q; there are %s", s.Use, names(o.Catalog.Backends, func(b backends.Backend) string { return b.Name }))
	}
	p.backend = o.Catalog.Backends[i]
	var ok bool
	if p.lock, ok = p.backend.Lock(s.Lock); !ok {
		return p.usage("backend.lock: %s has no lock %q; it has %s", s.Use, s.Lock, names(p.backend.Locks, func(l backends.Lock) string { return l.Name }))
	}
	if s.TTL < p.lock.MinTTL {
		return p.usage("backend.ttl: %v is less than %s honours: its %s lock takes %v and more", s.TTL, s.Use, p.lock.Name, p.lock.MinTTL)
	}
	t, err := p.backend.New(backends.Common{Nodes: s.Nodes, TTL: s.TTL, Lock: p.lock.Name}, s.Params.Decode)
	if err != nil {
		return p.usage("backend: %v", err)
	}
	p.topology = t
	p.specs = append(p.specs, t.Specs()...)
	return nil
}

func (p *Plan) checkWorkload(o Options) error {
	s := p.scenario.Workload
	if s.Use == "" {
		if len(p.scenario.Steps) == 0 {
			return p.usage("workload.use: there is neither a workload nor steps; workloads are %s", names(o.Catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
		}
		return nil
	}
	i := slices.IndexFunc(o.Catalog.Workloads, func(k workloads.Kind) bool { return k.Name == s.Use })
	if i < 0 {
		return p.usage("workload.use: there is no workload %q; there are %s", s.Use, names(o.Catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
	}
	p.kind = o.Catalog.Workloads[i]
	w, err := p.kind.New(s.Params.Decode)
	if err != nil {
		return p.usage("workload: %v", err)
	}
	p.workload = w
	for i := range w.Locks(s.Clients * max(s.Users, 1)) {
		p.locks = append(p.locks, workloads.LockName(i))
	}
	if w.NeedsResource() && s.Resource.Use == "" {
		return p.usage("workload.resource: %s reads and writes what the lock protects; give one of %s", s.Use, names(o.Catalog.Resources, func(r Resource) string { return r.Name }))
	}
	for i := range s.Clients {
		p.specs = append(p.specs, clientSpec(i))
	}
	return nil
}

func (p *Plan) checkResource(o Options) error {
	s := p.scenario.Workload.Resource
	if s.Use == "" {
		return nil
	}
	i := slices.IndexFunc(o.Catalog.Resources, func(r Resource) bool { return r.Name == s.Use })
	if i < 0 {
		return p.usage("workload.resource.use: there is no resource %q; there are %s", s.Use, names(o.Catalog.Resources, func(r Resource) string { return r.Name }))
	}
	r := o.Catalog.Resources[i]
	if !slices.Contains(r.Guards, s.Guard) {
		return p.usage("workload.resource.guard: %s has no guard %q; it has %s", s.Use, s.Guard, strings.Join(r.Guards, ", "))
	}
	if s.Guard != "none" && p.lock.Offers.Token == backends.TokenNone {
		return p.usage("workload.resource.guard: %s needs a fencing token, and lock %s of %s has none; use guard none, or a lock with a token (`lockquake list locks`)",
			s.Guard, p.lock.Name, p.backend.Name)
	}
	p.resource = &r
	p.specs = append(p.specs, r.Spec())
	return nil
}

// checkPeople gives every user that steps name a client of its own, and collects the locks that steps name.
func (p *Plan) checkPeople(Options) error {
	first := 0
	if p.workload != nil {
		first = p.scenario.Workload.Clients
	}
	for _, st := range p.scenario.Steps {
		if st.Do == "" {
			continue
		}
		if !slices.Contains(p.people, st.User) {
			p.people = append(p.people, st.User)
			p.specs = append(p.specs, clientSpec(first+len(p.people)-1))
		}
		if name := stepLock(st); !slices.Contains(p.locks, name) {
			p.locks = append(p.locks, name)
		}
		if (st.Do == "read" || st.Do == "write") && p.resource == nil {
			return p.usage("line %d: %s needs something to act on; give workload.resource", st.Line, st.Do)
		}
	}
	return nil
}

func stepLock(st scenarios.Step) string {
	if st.Lock == "" {
		return workloads.LockName(0)
	}
	return st.Lock
}

func (p *Plan) checkChaos(o Options) error {
	var entries []chaos.Entry
	for i, in := range p.scenario.Chaos {
		inj, err := p.injection(o, in.Use, in.On, in.Params)
		if err != nil {
			return p.usage("chaos[%d]: %v", i, err)
		}
		p.injections = append(p.injections, inj)
		entry := chaos.Entry{At: in.At, For: in.For, Every: in.Every, Jitter: in.Jitter}
		if err := inj.kind.Fits(entry); err != nil {
			return p.usage("chaos[%d]: %v", i, err)
		}
		entries = append(entries, entry)
	}
	if len(entries) == 0 {
		return nil
	}
	if p.workload == nil {
		return p.usage("chaos: a schedule needs a workload; with steps alone, inject by a step")
	}
	var err error
	if p.schedule, err = chaos.Plan(entries, p.scenario.Run.For, p.scenario.Run.Seed); err != nil {
		return p.usage("chaos: %v", err)
	}
	return nil
}

func (p *Plan) injection(o Options, use, on string, params scenarios.Params) (injection, error) {
	i := slices.IndexFunc(o.Catalog.Faults, func(k chaos.Kind) bool { return k.Name == use })
	if i < 0 {
		return injection{}, fmt.Errorf("there is no fault %q; there are %s", use, names(o.Catalog.Faults, func(k chaos.Kind) string { return k.Name }))
	}
	inj := injection{kind: o.Catalog.Faults[i], on: on}
	var err error
	if inj.fault, err = inj.kind.New(params.Decode); err != nil {
		return injection{}, err
	}
	if b, err := json.Marshal(inj.fault); err == nil && string(b) != "{}" {
		inj.params = string(b)
	}
	if k := slices.Index(p.people, on); k >= 0 {
		on = p.personNode(k)
	}
	inj.selector, err = chaos.ParseSelector(on, p.nodeNames())
	return inj, err
}

func (p *Plan) checkSteps(o Options) error {
	for i, st := range p.scenario.Steps {
		switch {
		case st.Inject != "":
			inj, err := p.injection(o, st.Inject, st.On, st.Params)
			if err != nil {
				return p.usage("line %d: %v", st.Line, err)
			}
			inj.as = st.As
			p.stepFaults[i] = inj
		case st.Await != "" && st.User != "" && !slices.Contains(p.people, st.User):
			return p.usage("line %d: nobody called %q does anything in these steps; there are %s", st.Line, st.User, strings.Join(p.people, ", "))
		case st.Await == "fact":
			if err := p.checkFact(st); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Plan) checkFact(st scenarios.Step) error {
	if !slices.Contains(p.nodeNames(), st.Node) {
		return p.usage("line %d: there is no node %q; there are %s", st.Line, st.Node, strings.Join(p.nodeNames(), ", "))
	}
	known := slices.Sorted(maps.Keys(p.topology.Service(nil).Facts()))
	// A fact such as "holder:LOCK" is asked for with a lock's name in the place of the word.
	if !slices.ContainsFunc(known, func(f string) bool {
		prefix, named := strings.CutSuffix(f, "LOCK")
		return f == st.Fact || named && strings.HasPrefix(st.Fact, prefix)
	}) {
		return p.usage("line %d: %s cannot be asked for %q; it answers %s", st.Line, p.backend.Name, st.Fact, strings.Join(known, ", "))
	}
	return nil
}

// checkDelivery asks the provider, before anything starts, for every capability that the scenario's faults need.
func (p *Plan) checkDelivery(o Options) error {
	all := slices.Clone(p.injections)
	for _, inj := range p.stepFaults {
		all = append(all, inj)
	}
	for _, inj := range all {
		if err := p.deliverable(o.Provider, inj); err != nil {
			return MissingError{Text: fmt.Sprintf("%s: fault %s on %s cannot be delivered by provider %s: %v", p.scenario.Name, inj.kind.Name, inj.on, o.Provider.Name(), err)}
		}
	}
	return nil
}

func (p *Plan) deliverable(provider cluster.Provider, inj injection) error {
	needs := slices.Clone(inj.kind.Needs)
	if _, ok := inj.selector.Holder(); ok {
		needs = append(needs, chaos.CanPause) // a holder is stopped first, so that it cannot slip away
	}
	var errs []error
	for _, role := range p.roles(inj.selector) {
		for _, c := range needs {
			errs = append(errs, provider.Offers(c, role))
		}
	}
	return errors.Join(errs...)
}

// roles returns the roles of the nodes that a selector may pick.
func (p *Plan) roles(sel chaos.Selector) []cluster.Role {
	if _, ok := sel.Holder(); ok || sel.String() == "clients" {
		return []cluster.Role{cluster.Client}
	}
	for _, s := range p.specs {
		if s.Name == sel.String() {
			return []cluster.Role{s.Role}
		}
	}
	return []cluster.Role{cluster.Server}
}

func (p *Plan) nodeNames() []string {
	var out []string
	for _, s := range p.specs {
		out = append(out, s.Name)
	}
	return out
}

// personNode returns the node name of the k-th user that steps name.
func (p *Plan) personNode(k int) string { return clientName(p.personIndex(k)) }

func (p *Plan) personIndex(k int) int {
	if p.workload == nil {
		return k
	}
	return p.scenario.Workload.Clients + k
}

func clientName(i int) string { return fmt.Sprintf("client-%d", i+1) }

func clientSpec(i int) cluster.Spec {
	return cluster.Spec{
		Name: clientName(i), Role: cluster.Client, Image: cluster.SelfProgram, Stdio: true,
		Command: func(cluster.Place) []string { return []string{cluster.SelfProgram, "client"} },
	}
}

func names[T any](list []T, name func(T) string) string {
	var out []string
	for _, x := range list {
		out = append(out, name(x))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// load returns how long the workload runs.
func (p *Plan) load() time.Duration {
	if p.workload == nil {
		return 0
	}
	return p.scenario.Run.For
}
