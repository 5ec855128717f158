package engine

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Plan is a scenario with every name resolved and every parameter decoded: what Run will do.
type Plan struct {
	scenario scenarios.Scenario
	backend  backends.Backend
	lock     backends.Lock
	topology backends.Topology
	workload workloads.Workload // nil: steps only
	kind     workloads.Kind
	renews   bool      // the workload extends its grants, whether or not the scenario says so
	resource *Resource // nil: nothing is protected
	guard    resource.Guard
	people   []string // the users that steps name, in the order of their clients
	specs    []cluster.Spec
	locks    []string

	injections []injection       // all that the schedule may hold
	schedule   []due             // what happens when, in order
	promise    chaos.Promise     // what the schedule's injections leave each other and the service
	stepFaults map[int]injection // by index of the scenario's steps
	observed   map[int][]string  // the nodes that an observe step asks, by its index
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
}

// Check resolves every name of the scenario and decodes every parameter, without starting anything. Its errors are
// UsageError and MissingError.
func Check(o Options) (*Plan, error) {
	p := &Plan{scenario: o.Scenario, stepFaults: map[int]injection{}, observed: map[int][]string{}}
	for _, check := range []func(Options) error{
		p.checkBackend, p.checkWorkload, p.checkOffers, p.checkResource, p.checkPeople, p.checkImages, p.checkChaos, p.checkSteps,
		p.checkPreparations, p.checkDelivery,
	} {
		if err := check(o); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// wrong makes an error about a key of the scenario, with its place.
func (p *Plan) wrong(path, format string, args ...any) error {
	return p.scenario.Errorf(path, format, args...)
}

// place adds the place of a key to an error that does not name one yet.
func (p *Plan) place(path string, err error) error {
	if placed := (*scenarios.Error)(nil); errors.As(err, &placed) {
		return err
	}
	return p.wrong(path, "%v", err)
}

func (p *Plan) checkBackend(o Options) error {
	s := p.scenario.Backend
	i := slices.IndexFunc(o.Catalog.Backends, func(b backends.Backend) bool { return b.Name == s.Use })
	if i < 0 {
		return p.wrong("backend.use", "there is no backend %q; there are %s", s.Use, names(o.Catalog.Backends, func(b backends.Backend) string { return b.Name }))
	}
	p.backend = o.Catalog.Backends[i]
	var ok bool
	if p.lock, ok = p.backend.Lock(s.Lock); !ok {
		return p.wrong("backend.lock", "%s has no lock %q; it has %s", s.Use, s.Lock, names(p.backend.Locks, func(l backends.Lock) string { return l.Name }))
	}
	if s.TTL < p.lock.MinTTL {
		return p.wrong("backend.ttl", "%v is less than %s honours: its %s lock takes %v and more", s.TTL, s.Use, p.lock.Name, p.lock.MinTTL)
	}
	t, err := p.backend.New(backends.Common{Nodes: s.Nodes, TTL: s.TTL, Lock: p.lock.Name}, s.Params.Decode)
	if err != nil {
		return p.place("backend", err)
	}
	p.topology = t
	if l := limits(s.Limits); len(t.Specs()) == 0 && !l.None() {
		return p.wrong("backend", "%s has no servers that could be held to %v", s.Use, l)
	}
	for _, spec := range t.Specs() {
		spec.Limits = limits(s.Limits)
		p.specs = append(p.specs, spec)
	}
	return nil
}

func (p *Plan) checkWorkload(o Options) error {
	s := p.scenario.Workload
	if s.Use == "" {
		if len(p.scenario.Steps) == 0 {
			return p.wrong("workload.use", "there is neither a workload nor steps; workloads are %s", names(o.Catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
		}
		return nil
	}
	i := slices.IndexFunc(o.Catalog.Workloads, func(k workloads.Kind) bool { return k.Name == s.Use })
	if i < 0 {
		return p.wrong("workload.use", "there is no workload %q; there are %s", s.Use, names(o.Catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
	}
	p.kind = o.Catalog.Workloads[i]
	w, err := p.kind.New(s.Params.Decode)
	if err != nil {
		return p.place("workload", err)
	}
	p.workload = w
	n := w.Locks(s.Clients * max(s.Users, 1))
	if n > maxLocks {
		return p.wrong("workload", "%d locks are more than the %d that a history can name", n, maxLocks)
	}
	for i := range n {
		p.locks = append(p.locks, workloads.LockName(i))
	}
	if w.NeedsResource() && s.Resource.Use == "" {
		return p.wrong("workload.resource", "%s reads and writes what the lock protects; give one of %s", s.Use, names(o.Catalog.Resources, func(r Resource) string { return r.Name }))
	}
	for i := range s.Clients {
		p.specs = append(p.specs, p.clientSpec(i))
	}
	return nil
}

// maxLocks is how many locks a history can tell apart.
const maxLocks = 1 << 16

// checkOffers asks whether the lock can do what the users are told to rely on.
func (p *Plan) checkOffers(Options) error {
	s, has := p.scenario.Workload, p.lock.Offers
	if w, ok := p.workload.(workloads.Sharing); ok && w.Shares() && !has.Shared {
		return p.wrong("workload.shared", "lock %s of %s knows no shared mode", p.lock.Name, p.backend.Name)
	}
	for i, st := range p.scenario.Steps {
		if st.Mode == lock.Shared.String() && !has.Shared {
			return p.wrong(stepPath(i, "mode"), "lock %s of %s knows no shared mode", p.lock.Name, p.backend.Name)
		}
	}
	if w, ok := p.workload.(workloads.Renewing); ok && w.Renews() {
		p.renews = true
	}
	switch {
	case p.renews && has.Renewal == "none":
		return p.wrong("workload.use", "%s extends its grants, and lock %s of %s cannot be renewed", s.Use, p.lock.Name, p.backend.Name)
	case s.Renew && has.Renewal == "none":
		return p.wrong("workload.renew", "lock %s of %s cannot be renewed", p.lock.Name, p.backend.Name)
	case s.Check == "signal" && !has.LossSignal && !s.Renew && !p.renews:
		return p.wrong("workload.check", "lock %s of %s tells nobody of a loss; use check: validity, or renew: true, whose answers tell", p.lock.Name, p.backend.Name)
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
		return p.wrong("workload.resource.use", "there is no resource %q; there are %s", s.Use, names(o.Catalog.Resources, func(r Resource) string { return r.Name }))
	}
	r := o.Catalog.Resources[i]
	g := slices.IndexFunc(r.Guards, func(g resource.Guard) bool { return g.Name == s.Guard })
	if g < 0 {
		return p.wrong("workload.resource.guard", "%s has no guard %q; it has %s", s.Use, s.Guard, names(r.Guards, func(g resource.Guard) string { return g.Name }))
	}
	p.guard = r.Guards[g]
	if p.guard.Token && p.lock.Offers.Token == backends.TokenNone {
		return p.wrong("workload.resource.guard", "%s needs a fencing token, and lock %s of %s has none; use guard none, or a lock with a token (`lockquake list locks`)",
			s.Guard, p.lock.Name, p.backend.Name)
	}
	if p.guard.Sequencer && !p.lock.Offers.Sequencer {
		return p.wrong("workload.resource.guard", "%s asks the lock service whether a sequencer still describes the lock, and lock %s of %s cannot be asked; use lock chubby of etcd",
			s.Guard, p.lock.Name, p.backend.Name)
	}
	if p.guard.Writes != "" && p.kind.Writes != p.guard.Writes {
		return p.wrong("workload.resource.guard", "%s is about %s, which the writes of this workload are not", s.Guard, p.guard.Writes)
	}
	if r.Within != "" && r.Within != p.backend.Name {
		return p.wrong("workload.resource.use", "%s keeps the values in the lock service itself, which must be %s and is %s; use register", s.Use, r.Within, p.backend.Name)
	}
	if i := slices.IndexFunc(r.Specs(), func(s cluster.Spec) bool { return s.Image != cluster.SelfProgram }); i >= 0 && p.backend.InProcess {
		return p.wrong("workload.resource.use", "%s needs processes of its own, and backend %s has none; use register", s.Use, p.backend.Name)
	}
	p.resource = &r
	p.specs = append(p.specs, r.Specs()...)
	return nil
}

func names[T any](list []T, name func(T) string) string {
	var out []string
	for _, x := range list {
		out = append(out, name(x))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// terms are the workload's own numbers that its writes are judged by.
func (p *Plan) terms() map[string]int64 {
	if w, ok := p.workload.(workloads.Termed); ok {
		return w.Terms()
	}
	return nil
}

// load returns how long the workload runs.
func (p *Plan) load() time.Duration {
	if p.workload == nil {
		return 0
	}
	return p.scenario.Run.For
}
