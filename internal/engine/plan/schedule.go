package plan

import (
	"fmt"
	"strconv"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/scenarios"
)

// schedulePlanner makes the injections of the schedule.
type schedulePlanner struct {
	plan *Plan
	made injections
}

// find reads the schedule, or draws it.
func (p schedulePlanner) find() error {
	p.plan.Promise = chaos.Promise{
		Apart:    p.plan.Scenario.Overlap == scenarios.OverlapOtherNodes,
		Serial:   p.plan.Scenario.Overlap == scenarios.OverlapNever,
		Majority: p.plan.Scenario.Spare == scenarios.SpareMajority,
	}
	if len(p.plan.Scenario.Chaos) == 0 && p.plan.Scenario.Random == nil {
		return nil
	}
	if p.plan.Workload == nil {
		return p.plan.wrong("chaos", "a schedule needs a workload; without one, inject by a step")
	}
	if p.plan.Scenario.Random != nil {
		return p.random()
	}
	var entries []chaos.Entry
	for i, in := range p.plan.Scenario.Chaos {
		inj, err := p.scheduled(i)
		if err != nil {
			return err
		}
		p.plan.Injections = append(p.plan.Injections, inj)
		entry := chaos.Entry{At: in.At, For: in.For, Every: in.Every, Jitter: in.Jitter}
		if err := inj.Kind.Fits(inj.Fault, entry); err != nil {
			return p.plan.placed(in.Path, err)
		}
		if err := p.possible(inj, in.Path+".on"); err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	plan, err := chaos.Plan(entries, p.plan.Scenario.Run.For, p.plan.Scenario.Run.Seed)
	if err != nil {
		return p.plan.placed("chaos", err)
	}
	for i, x := range plan {
		inj, err := p.scheduled(x.Entry)
		if err != nil {
			return err
		}
		sel := inj.Selector.Settle(p.plan.Specs.Of(node.Server),
			seed.Rand(p.plan.Scenario.Run.Seed, fmt.Sprintf("selector-%d", i+1)))
		inj.settle(i+1, sel, x.At.String())
		p.plan.Schedule = append(p.plan.Schedule, Due{At: x.At, Lasts: x.For, Inj: inj})
	}
	return nil
}

// scheduled makes the injection of an entry of the scenario's list.
func (p schedulePlanner) scheduled(i int) (Injection, error) {
	in := p.plan.Scenario.Chaos[i]
	inj, err := p.made.make(faultKeys{path: in.Path, key: "use", use: in.Use, on: in.On, params: in.Params})
	inj.Entry, inj.Held = i+1, in.Held
	if _, holder := inj.Selector.Holder(); err == nil && in.Held > 0 && !holder {
		err = p.plan.wrong(in.Path+".held", "held applies only to the target holder (%v); this is on %s", in.Held, in.On)
	}
	return inj, err
}

// possible rejects a target on which every injection would break the schedule's promise. It cannot check link faults:
// their other ends are found when they are injected.
func (p schedulePlanner) possible(inj Injection, path string) error {
	if _, linked := inj.Fault.(chaos.Linked); linked {
		return nil
	}
	if why := p.plan.Promise.Never(inj.Selector, p.plan.Specs.Of(node.Server), seed.Rand(1, path)); why != "" {
		return p.plan.wrong(path, "%s on %s can never be made with spare: %s: %s", inj.Kind.Name, inj.On,
			scenarios.SpareMajority, why)
	}
	return nil
}

// random checks everything that a random schedule may draw, and draws the schedule.
func (p schedulePlanner) random() error {
	r := p.plan.Scenario.Random
	draw := chaos.Random{
		MeanGap: r.MeanGap, Promise: p.plan.Promise, Servers: p.plan.Specs.Of(node.Server),
		Clients: p.plan.Specs.Of(node.Client),
	}
	for i, f := range r.Faults {
		d, err := p.drawable(i, f)
		if err != nil {
			return err
		}
		draw.Faults = append(draw.Faults, d)
	}
	runSeed := p.plan.Scenario.Run.Seed
	drawn, err := draw.Draw(p.plan.Scenario.Run.For, max(runSeed, 1))
	if err != nil {
		return p.plan.placed("chaos", err)
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
		p.plan.Schedule = append(p.plan.Schedule, Due{At: x.At, Lasts: x.For, Inj: inj})
	}
	return nil
}

func randomPath(i int) string { return fmt.Sprintf("chaos.random.%d", i) }

// drawable checks one fault that may be drawn: on each of its targets, with both ends of its ranges. So whether a
// scenario is rejected does not depend on its seed.
func (p schedulePlanner) drawable(i int, f scenarios.RandomFault) (chaos.Drawable, error) {
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
			p.plan.Injections = append(p.plan.Injections, inj)
		}
		inj := p.plan.Injections[len(p.plan.Injections)-1]
		if err := p.possible(inj, randomPath(i)+".on"); err != nil {
			return out, err
		}
		out.On, out.Lasting = append(out.On, inj.Selector), inj.Kind.Lasts(inj.Fault)
		_, out.Linked = inj.Fault.(chaos.Linked)
		if f.Timed && !out.Lasting {
			return out, p.plan.placed(randomPath(i)+".for", inj.Kind.Fits(inj.Fault, chaos.Entry{For: f.For.Low}))
		}
	}
	return out, nil
}

// fitting returns the targets that a fault may be drawn on: its own, or those of the whole schedule that it can hit.
func (p schedulePlanner) fitting(f scenarios.RandomFault) ([]string, error) {
	k, known := chaos.Lookup(p.made.faults, f.Use)
	if f.Aimed || !known {
		return f.On, nil
	}
	var out []string
	why := ""
	for _, on := range f.On {
		sel, err := p.made.target(on)
		if err != nil {
			return nil, p.plan.placed("chaos.on", err)
		}
		if misses := p.made.aim(k, sel); misses != "" {
			why = misses
			continue
		}
		out = append(out, on)
	}
	if len(out) == 0 {
		return nil, p.plan.wrong("chaos.on", "there is no target here for %s: %s", f.Use, why)
	}
	return out, nil
}

func (p schedulePlanner) randomInjection(i int, on string, pick func(int64) int64) (Injection, error) {
	f := p.plan.Scenario.Random.Faults[i]
	params := f.Params
	if k, ok := chaos.Lookup(p.made.faults, f.Use); ok && len(params.Keys()) == 0 && k.Sample != "" {
		var err error
		if params, err = scenarios.ParseParams(k.Sample); err != nil {
			return Injection{}, fmt.Errorf("sample of %s: %w", k.Name, err)
		}
	}
	params, err := params.Settle(pick)
	if err != nil {
		return Injection{}, err
	}
	inj, err := p.made.make(faultKeys{path: randomPath(i), key: "use", use: f.Use, on: on, params: params})
	inj.Entry = i + 1
	return inj, err
}
