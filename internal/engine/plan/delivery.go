package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
)

// deliveryPlanner checks that every fault and limit can be delivered here, and records the preparations that nodes
// need for them.
type deliveryPlanner struct {
	plan *Plan
	from Request
}

// prepare adds the preparations that a fault needs to every node that it may hit. It rejects preparations that the
// provider does not have.
func (p deliveryPlanner) prepare() error {
	for _, inj := range p.plan.allInjections() {
		f, ok := inj.Fault.(chaos.Prepared)
		if !ok {
			continue
		}
		for _, s := range p.plan.Specs.picks(inj.Selector) {
			for _, what := range f.Preparations() {
				if err := p.prepared(s, what); err != nil {
					return p.undeliverable(inj, err)
				}
			}
		}
	}
	return p.checkExclusions()
}

// checkExclusions rejects a fault on a node with preparations that it does not work with.
func (p deliveryPlanner) checkExclusions() error {
	for _, inj := range p.plan.allInjections() {
		f, ok := inj.Fault.(chaos.Excluding)
		if !ok {
			continue
		}
		what, why := f.Excludes()
		for _, s := range p.plan.Specs.picks(inj.Selector) {
			if slices.Contains(s.Preparations, what) {
				return p.undeliverable(inj, fmt.Errorf("%s: %s", s.Name, why))
			}
		}
	}
	return nil
}

// prepared adds a preparation to the plan of a node.
func (p deliveryPlanner) prepared(s node.Spec, what node.Preparation) error {
	i := slices.IndexFunc(p.plan.Specs, func(x node.Spec) bool { return x.Name == s.Name })
	if slices.Contains(p.plan.Specs[i].Preparations, what) {
		return nil
	}
	preparer, ok := p.from.Provider.(cluster.Preparer)
	if !ok {
		return chaos.Unavailable{What: string(what), Reason: "this provider prepares no nodes"}
	}
	var missing chaos.Unavailable
	if err := preparer.Prepares(what, s, p.from.Images[s.Image]); errors.As(err, &missing) {
		return fmt.Errorf("%s: %w", s.Name, err)
	} else if err != nil {
		return fmt.Errorf("it is unknown whether %s can have %s: %w", s.Name, what, err)
	}
	p.plan.Specs[i].Preparations = append(p.plan.Specs[i].Preparations, what)
	return nil
}

// check asks the provider, before anything starts, for every capability that the scenario's faults and limits need.
func (p deliveryPlanner) check() error {
	for _, s := range p.plan.Specs {
		if !s.Alike {
			continue
		}
		if err := p.from.Provider.Offers(cluster.CanAlike, s.Role); err != nil {
			return MissingError{Text: fmt.Sprintf("%s: the clients cannot be made alike by provider %s: %v",
				p.plan.Scenario.Name, p.from.Provider.Name(), err)}
		}
		p.plan.Needs[s.Name] = append(p.plan.Needs[s.Name], cluster.CanAlike)
	}
	for _, s := range p.plan.Specs {
		if s.Limits.None() {
			continue
		}
		if err := p.from.Provider.Offers(cluster.CanLimit, s.Role); err != nil {
			return MissingError{Text: fmt.Sprintf("%s: %s cannot be limited to %v by provider %s: %v; see `lockquake doctor`",
				p.plan.Scenario.Name, s.Name, s.Limits, p.from.Provider.Name(), err)}
		}
		p.plan.Needs[s.Name] = append(p.plan.Needs[s.Name], cluster.CanLimit)
	}
	for _, inj := range p.plan.allInjections() {
		if err := p.deliverable(inj); err != nil {
			return p.undeliverable(inj, err)
		}
	}
	return nil
}

func (p deliveryPlanner) deliverable(inj Injection) error {
	if w, ok := inj.Fault.(chaos.Wanting); ok {
		if err := w.Wants(p.plan.Topology.Service(nil)); err != nil {
			return err
		}
	}
	needs := slices.Clone(inj.needs())
	if _, ok := inj.Selector.Holder(); ok {
		needs = append(needs, chaos.CanPause) // a holder is stopped first, so that it cannot slip away
	}
	var errs []error
	offered := func(needs []chaos.Capability, sel chaos.Selector) {
		for _, role := range p.plan.Specs.roles(sel) {
			for _, c := range needs {
				errs = append(errs, p.from.Provider.Offers(c, role))
			}
		}
		for _, s := range p.plan.Specs.picks(sel) {
			p.plan.Needs[s.Name] = append(p.plan.Needs[s.Name], needs...)
		}
	}
	offered(needs, inj.Selector)
	offered(inj.Kind.PeerNeeds, inj.Far)
	return errors.Join(errs...)
}

func (p deliveryPlanner) undeliverable(inj Injection, err error) error {
	return MissingError{Text: fmt.Sprintf("%s: fault %s on %s cannot be delivered by provider %s: %v",
		p.plan.Scenario.Name, inj.Kind.Name, inj.On, p.from.Provider.Name(), err), Err: err}
}

// errNotOurs is the reason why an attached server cannot be a target.
var errNotOurs = chaos.Unavailable{
	What:   "a fault on an attached server",
	Reason: "lockquake cannot break attached servers; target clients", Never: true,
}

// checkAttached rejects everything that does more to attached servers than use them.
func (p deliveryPlanner) checkAttached() error {
	switch {
	case len(p.plan.Outside) == 0:
		return nil
	case p.from.Keep:
		return UsageError{
			Text: "--keep: kept clients would continue to write to the attached service; omit --keep",
		}
	case p.plan.Resource != nil && p.plan.Resource.Within != "":
		return p.plan.wrong("workload.resource.use",
			"%s keeps its values in the lock service, and lockquake cannot set up an attached one; use register",
			p.plan.Resource.Name)
	}
	server := func(s node.Spec) bool { return s.Role == node.Server }
	for _, inj := range p.plan.allInjections() {
		if slices.ContainsFunc(p.plan.Specs.picks(inj.Selector), server) {
			return p.undeliverable(inj, errNotOurs)
		}
		if slices.ContainsFunc(p.plan.Specs.picks(inj.Far), server) {
			if err := p.deliverableHere(inj); err != nil {
				return p.undeliverable(inj, err)
			}
		}
	}
	return nil
}

// deliverableHere returns why a link fault cannot be injected at the targets' own ends alone.
func (p deliveryPlanner) deliverableHere(inj Injection) error {
	f, ok := inj.Fault.(chaos.OneEnded)
	if !ok {
		return chaos.Unavailable{
			What:   inj.Kind.Name + " of links to attached servers",
			Reason: "lockquake cannot enter attached servers", Never: true,
		}
	}
	needs, err := f.AtOwnEnd()
	errs := []error{err}
	for _, role := range p.plan.Specs.roles(inj.Selector) {
		for _, c := range needs {
			errs = append(errs, p.from.Provider.Offers(c, role))
		}
	}
	return errors.Join(errs...)
}
