package plan

import (
	"slices"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// workloadPlanner determines what clients do, and what the lock protects.
type workloadPlanner struct {
	plan    *Plan
	catalog Catalog
}

func (p workloadPlanner) find() error {
	s := p.plan.Scenario.Workload
	if s.Use == "" {
		if len(p.plan.Scenario.Steps) == 0 {
			return p.plan.wrong("workload.use", "there is neither a workload nor steps; workloads are %s",
				names(p.catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
		}
		return nil
	}
	i := slices.IndexFunc(p.catalog.Workloads, func(k workloads.Kind) bool { return k.Name == s.Use })
	if i < 0 {
		return p.plan.wrong("workload.use", "there is no workload %q; there are %s", s.Use,
			names(p.catalog.Workloads, func(k workloads.Kind) string { return k.Name }))
	}
	p.plan.Kind = p.catalog.Workloads[i]
	w, err := p.plan.Kind.New(s.Params.Decode)
	if err != nil {
		return p.plan.placed("workload", err)
	}
	p.plan.Workload = w
	n := w.Locks(s.Clients * max(s.Users, 1))
	if n > maxLocks {
		return p.plan.wrong("workload", "%d locks: a history can name at most %d", n, maxLocks)
	}
	for i := range n {
		p.plan.Locks = append(p.plan.Locks, workloads.LockName(i))
	}
	if w.NeedsResource() && s.Resource.Use == "" {
		return p.plan.wrong("workload.resource", "%s uses a resource; give one of %s", s.Use,
			names(p.catalog.Resources, func(r resource.Kind) string { return r.Name }))
	}
	for i := range s.Clients {
		p.plan.Specs = append(p.plan.Specs, p.plan.ClientSpec(i))
	}
	return nil
}

// maxLocks is the largest number of locks in a history.
const maxLocks = 1 << 16

// checkOffers checks that the lock has what the workload and the steps need: shared mode, re-entries, permits, renewal,
// a signal of loss.
func (p workloadPlanner) checkOffers() error {
	s, has := p.plan.Scenario.Workload, p.plan.Lock.Offers
	if at := sharedAt(p.plan.Workload, p.plan.Scenario.Steps); at != "" && !has.Shared {
		return p.plan.wrong(at, "lock %s of %s has no shared mode", p.plan.Lock.Name, p.plan.Backend.Name)
	}
	// an external program says in its hello what it supports
	if at := reentrantAt(p.plan.Scenario.Steps); at != "" && !has.Reenters && len(p.plan.Programs) == 0 {
		return p.plan.wrong(at, "lock %s of %s is not re-entrant", p.plan.Lock.Name,
			p.plan.Backend.Name)
	}
	if err := p.checkPermits(); err != nil {
		return err
	}
	if w, ok := p.plan.Workload.(workloads.Renewing); ok && w.Renews() {
		p.plan.Renews = true
	}
	switch {
	case p.plan.Renews && has.Renewal == "none":
		return p.plan.wrong("workload.use", "%s extends its grants, but lock %s of %s cannot be renewed", s.Use,
			p.plan.Lock.Name, p.plan.Backend.Name)
	case s.Renew && has.Renewal == "none":
		return p.plan.wrong("workload.renew", "lock %s of %s cannot be renewed", p.plan.Lock.Name, p.plan.Backend.Name)
	case s.Check == "signal" && !has.LossSignal && !s.Renew && !p.plan.Renews:
		return p.plan.wrong("workload.check",
			"lock %s of %s reports no loss; use check: validity, or renew: true, whose answers report it",
			p.plan.Lock.Name, p.plan.Backend.Name)
	}
	return nil
}

// checkPermits rejects several holders if the lock, or what it protects, is made for one.
func (p workloadPlanner) checkPermits() error {
	const at = "backend.permits"
	b := p.plan.Scenario.Backend
	switch shared := sharedAt(p.plan.Workload, p.plan.Scenario.Steps); {
	case b.Permits <= 1:
		return nil
	case !p.plan.Lock.Offers.Permits && len(p.plan.Programs) == 0:
		return p.plan.wrong(at, "lock %s of %s is held by one user at a time", p.plan.Lock.Name, p.plan.Backend.Name)
	case shared != "":
		return p.plan.wrong(shared, "a lock of %d permits has no shared mode; omit %s", b.Permits, at)
	case p.plan.Scenario.Workload.Resource.Use != "":
		return p.plan.wrong("workload.resource", "%d users hold the lock at once, so their writes conflict; omit %s",
			b.Permits, at)
	}
	return nil
}

func (p workloadPlanner) findResource() error {
	s := p.plan.Scenario.Workload.Resource
	if s.Use == "" {
		return nil
	}
	r, ok := resource.Find(p.catalog.Resources, s.Use)
	if !ok {
		return p.plan.wrong("workload.resource.use", "there is no resource %q; there are %s", s.Use,
			names(p.catalog.Resources, func(r resource.Kind) string { return r.Name }))
	}
	g := slices.IndexFunc(r.Guards, func(g resource.Guard) bool { return g.Name == s.Guard })
	if g < 0 {
		return p.plan.wrong("workload.resource.guard", "%s has no guard %q; it has %s", s.Use, s.Guard,
			names(r.Guards, func(g resource.Guard) string { return g.Name }))
	}
	p.plan.Guard = r.Guards[g]
	if p.plan.Guard.Token && p.plan.Lock.Offers.Token == backends.TokenNone {
		return p.plan.wrong("workload.resource.guard",
			"%s needs a fencing token, but lock %s of %s has none; use guard none, or a lock with a token (`lockquake list locks`)",
			s.Guard, p.plan.Lock.Name, p.plan.Backend.Name)
	}
	if p.plan.Guard.Sequencer && !p.plan.Lock.Offers.Sequencer {
		return p.plan.wrong("workload.resource.guard",
			"%s asks the lock service whether a sequencer is still valid, but lock %s of %s cannot check that; use lock chubby of etcd",
			s.Guard, p.plan.Lock.Name, p.plan.Backend.Name)
	}
	if p.plan.Guard.Writes != "" && p.plan.Kind.Writes != p.plan.Guard.Writes {
		return p.plan.wrong("workload.resource.guard", "%s needs writes that are %s, which this workload does not make",
			s.Guard, p.plan.Guard.Writes)
	}
	if r.Within != "" && r.Within != p.plan.Backend.Name {
		return p.plan.wrong("workload.resource.use",
			"%s keeps the values in the lock service itself, which must be %s but is %s; use register", s.Use, r.Within,
			p.plan.Backend.Name)
	}
	if i := slices.IndexFunc(r.Specs(), func(s node.Spec) bool { return s.Image != node.SelfProgram }); i >= 0 &&
		p.plan.Backend.InProcess {
		return p.plan.wrong("workload.resource.use",
			"%s needs its own processes, but backend %s has none; use register", s.Use, p.plan.Backend.Name)
	}
	p.plan.Resource = &r
	p.plan.Specs = append(p.plan.Specs, r.Specs()...)
	return nil
}

// findStepUsers gives every user that steps name its own client, and collects the locks that steps name.
func (p workloadPlanner) findStepUsers() error {
	first := 0
	if p.plan.Workload != nil {
		first = p.plan.Scenario.Workload.Clients
	}
	for i, st := range p.plan.Scenario.Steps {
		if st.Do == "" {
			continue
		}
		if !slices.Contains(p.plan.StepUsers, st.User) {
			p.plan.StepUsers = append(p.plan.StepUsers, st.User)
			p.plan.Specs = append(p.plan.Specs, p.plan.ClientSpec(first+len(p.plan.StepUsers)-1))
		}
		if !slices.Contains(p.plan.Locks, st.Lock) {
			p.plan.Locks = append(p.plan.Locks, st.Lock)
		}
		if (st.Do == "read" || st.Do == "write") && p.plan.Resource == nil {
			return p.plan.wrong(stepPath(i, "do"), "%s needs a resource; give workload.resource", st.Do)
		}
	}
	return nil
}
