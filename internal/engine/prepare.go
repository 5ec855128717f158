package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
)

// checkPreparations gives every node that may be the target of a fault what that fault needs there before the node starts. What
// cannot be had is refused here.
func (p *Plan) checkPreparations(o Options) error {
	for _, inj := range p.allInjections() {
		f, ok := inj.fault.(chaos.Prepared)
		if !ok {
			continue
		}
		for _, s := range p.picks(inj.selector) {
			for _, what := range f.Preparations() {
				if err := p.prepared(o, s, what); err != nil {
					return p.undeliverable(o, inj, err)
				}
			}
		}
	}
	return p.checkExclusions(o)
}

// checkExclusions looks that no fault may hit a node whose preparations it cannot bear.
func (p *Plan) checkExclusions(o Options) error {
	for _, inj := range p.allInjections() {
		f, ok := inj.fault.(chaos.Excluding)
		if !ok {
			continue
		}
		what, why := f.Excludes()
		for _, s := range p.picks(inj.selector) {
			if slices.Contains(s.Preparations, what) {
				return p.undeliverable(o, inj, fmt.Errorf("%s: %s", s.Name, why))
			}
		}
	}
	return nil
}

func (p *Plan) undeliverable(o Options, inj injection, err error) error {
	return MissingError{Text: fmt.Sprintf("%s: fault %s on %s cannot be delivered by provider %s: %v",
		p.scenario.Name, inj.kind.Name, inj.on, o.Provider.Name(), err), Err: err}
}

// prepared adds a preparation to the plan of a node.
func (p *Plan) prepared(o Options, s cluster.Spec, what chaos.Preparation) error {
	i := slices.IndexFunc(p.specs, func(x cluster.Spec) bool { return x.Name == s.Name })
	if slices.Contains(p.specs[i].Preparations, what) {
		return nil
	}
	preparer, ok := o.Provider.(cluster.Preparer)
	if !ok {
		return chaos.Unavailable{What: string(what), Reason: "this provider prepares no nodes"}
	}
	var missing chaos.Unavailable
	if err := preparer.Prepares(what, s, o.Images[s.Image]); errors.As(err, &missing) {
		return fmt.Errorf("%s: %w", s.Name, err)
	} else if err != nil {
		return fmt.Errorf("whether %s can have %s is not known: %w", s.Name, what, err)
	}
	p.specs[i].Preparations = append(p.specs[i].Preparations, what)
	return nil
}

// allInjections lists the injections of the schedule and of the steps.
func (p *Plan) allInjections() []injection {
	all := slices.Clone(p.injections)
	for i := range p.scenario.Steps {
		if inj, ok := p.stepFaults[i]; ok {
			all = append(all, inj)
		}
	}
	return all
}

// needs lists the capabilities that the injection needs of its targets.
func (i injection) needs() []chaos.Capability { return i.kind.NeedsOf(i.fault) }
