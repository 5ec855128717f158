package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// Check resolves every name of the scenario and decodes every parameter, without starting anything. Its errors are
// UsageError and MissingError.
func Check(from Request) (*Plan, error) {
	p := &Plan{
		Scenario: from.Scenario, StepFaults: map[int]Injection{}, Observed: map[int][]string{},
		Needs: map[string][]chaos.Capability{},
	}
	made := injections{plan: p, faults: from.Catalog.Faults}
	service, programs := servicePlanner{p, from}, programFinder{p, from}
	workload, images := workloadPlanner{p, from.Catalog}, imageChecker{p, from}
	delivery := deliveryPlanner{p, from}
	for _, part := range []func() error{
		service.find, programs.find,
		workload.find, workload.checkOffers, workload.findResource, workload.findStepUsers,
		programs.check, images.check,
		schedulePlanner{p, made}.find, stepPlanner{p, made}.find,
		func() error { return checkExpect(p, from.Catalog.Checkers) },
		delivery.checkAttached, delivery.prepare, delivery.check,
	} {
		if err := part(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// wrong returns an error about a key of the scenario, with its place.
func (p *Plan) wrong(path, format string, args ...any) error {
	return p.Scenario.Errorf(path, format, args...)
}

// placed adds the place of a key to an error that does not name one yet.
func (p *Plan) placed(path string, err error) error {
	if already := (*scenarios.Error)(nil); errors.As(err, &already) {
		return err
	}
	return p.wrong(path, "%v", err)
}

// checkExpect rejects names in expect and about by which no run is judged: a typing error would otherwise cost a
// whole run.
func checkExpect(p *Plan, checkers results.Checkers) error {
	var faults []string
	for _, i := range p.Injections {
		faults = append(faults, i.Kind.Name)
	}
	for _, i := range p.StepFaults {
		faults = append(faults, i.Kind.Name)
	}
	ofRuns := []string{scenarios.Judged, scenarios.Bit}
	known := func(path, name string) error {
		if slices.Contains(ofRuns, name) || checkers.Has(name, faults) {
			return nil
		}
		near := ""
		if c := scenarios.Closest(name, slices.Concat(ofRuns, checkers.Names()), 1); len(c) > 0 {
			near = "did you mean " + c[0] + "? "
		}
		return p.wrong(path, "there is no such count or measure; %s`lockquake list measures` lists them", near)
	}
	for i, name := range p.Scenario.About {
		if scenarios.IsEvent(name) {
			continue
		}
		if err := known(fmt.Sprintf("about.%d", i), name); err != nil {
			return err
		}
	}
	for _, e := range p.Scenario.Expect {
		path := "expect." + e.Name
		if err := known(path, e.Name); err != nil {
			return err
		}
		if e.Unit == "ms" && !results.IsTime(e.Name) {
			return p.wrong(path, "%s is not a duration: omit the unit of %q", e.Name, e.Text)
		}
	}
	return nil
}
