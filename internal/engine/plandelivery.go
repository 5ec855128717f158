package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
)

// deliveryPlanner checks that every fault and limit can be delivered here, and notes how nodes must be prepared for
// that.
type deliveryPlanner struct{ planner }

// prepare adds to every node that a fault may hit the preparations that the fault needs. It refuses those that the
// provider does not have.
func (p deliveryPlanner) prepare() error {
	for _, inj := range p.allInjections() {
		f, ok := inj.fault.(chaos.Prepared)
		if !ok {
			continue
		}
		for _, s := range p.picks(inj.selector) {
			for _, what := range f.Preparations() {
				if err := p.prepared(s, what); err != nil {
					return p.undeliverable(inj, err)
				}
			}
		}
	}
	return p.checkExclusions()
}

// checkExclusions refuses a fault on a node whose preparations it does not work with.
func (p deliveryPlanner) checkExclusions() error {
	for _, inj := range p.allInjections() {
		f, ok := inj.fault.(chaos.Excluding)
		if !ok {
			continue
		}
		what, why := f.Excludes()
		for _, s := range p.picks(inj.selector) {
			if slices.Contains(s.Preparations, what) {
				return p.undeliverable(inj, fmt.Errorf("%s: %s", s.Name, why))
			}
		}
	}
	return nil
}

// prepared adds a preparation to the plan of a node.
func (p deliveryPlanner) prepared(s node.Spec, what node.Preparation) error {
	i := slices.IndexFunc(p.specs, func(x node.Spec) bool { return x.Name == s.Name })
	if slices.Contains(p.specs[i].Preparations, what) {
		return nil
	}
	preparer, ok := p.Provider.(cluster.Preparer)
	if !ok {
		return chaos.Unavailable{What: string(what), Reason: "this provider prepares no nodes"}
	}
	var missing chaos.Unavailable
	if err := preparer.Prepares(what, s, p.Images[s.Image]); errors.As(err, &missing) {
		return fmt.Errorf("%s: %w", s.Name, err)
	} else if err != nil {
		return fmt.Errorf("whether %s can have %s is not known: %w", s.Name, what, err)
	}
	p.specs[i].Preparations = append(p.specs[i].Preparations, what)
	return nil
}

// check asks the provider, before anything starts, for every capability that the scenario's faults and limits need.
func (p deliveryPlanner) check() error {
	for _, s := range p.specs {
		if s.Limits.None() {
			continue
		}
		if err := p.Provider.Offers(cluster.CanLimit, s.Role); err != nil {
			return MissingError{Text: fmt.Sprintf("%s: %s cannot be limited to %v by provider %s: %v; `lockquake doctor` tells more",
				p.scenario.Name, s.Name, s.Limits, p.Provider.Name(), err)}
		}
		p.needs[s.Name] = append(p.needs[s.Name], cluster.CanLimit)
	}
	for _, inj := range p.allInjections() {
		if err := p.deliverable(inj); err != nil {
			return p.undeliverable(inj, err)
		}
	}
	return nil
}

func (p deliveryPlanner) deliverable(inj injection) error {
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
				errs = append(errs, p.Provider.Offers(c, role))
			}
		}
		for _, s := range p.picks(sel) {
			p.needs[s.Name] = append(p.needs[s.Name], needs...)
		}
	}
	offered(needs, inj.selector)
	offered(inj.kind.PeerNeeds, inj.far)
	return errors.Join(errs...)
}

func (p deliveryPlanner) undeliverable(inj injection, err error) error {
	return MissingError{Text: fmt.Sprintf("%s: fault %s on %s cannot be delivered by provider %s: %v",
		p.scenario.Name, inj.kind.Name, inj.on, p.Provider.Name(), err), Err: err}
}
