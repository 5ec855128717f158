package engine

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/scenarios"
)

// checkRandom reads the faults of a random schedule, whatever may be drawn of them, and draws it.
func (p *Plan) checkRandom(o Options) error {
	r := p.scenario.Random
	draw := chaos.Random{MeanGap: r.MeanGap, Promise: p.promise, Servers: p.namesOf(cluster.Server), Clients: p.namesOf(cluster.Client)}
	for i, f := range r.Faults {
		d, err := p.drawable(o, i, f)
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
		inj, err := p.drawnInjection(o, x.Fault, x.Chosen.String(), random)
		if err != nil {
			return err
		}
		inj.settle(n+1, x.On, x.At.String())
		p.schedule = append(p.schedule, due{at: x.At, lasts: x.For, inj: inj})
	}
	return nil
}

func randomPath(i int) string { return fmt.Sprintf("chaos.random.%d", i) }

// drawable checks one fault that may be drawn, on each of its targets and with both ends of its ranges, so that what is refused
// does not hang on the seed.
func (p *Plan) drawable(o Options, i int, f scenarios.RandomFault) (chaos.Drawable, error) {
	out := chaos.Drawable{Shortest: f.For.Low, Longest: f.For.High}
	targets, err := p.fitting(o, f)
	if err != nil {
		return out, err
	}
	for _, on := range targets {
		for _, pick := range []func(int64) int64{func(int64) int64 { return 0 }, func(last int64) int64 { return last }} {
			inj, err := p.randomInjection(o, i, on, pick)
			if err != nil {
				return out, err
			}
			p.injections = append(p.injections, inj)
		}
		inj := p.injections[len(p.injections)-1]
		if err := p.possible(inj, randomPath(i)+".on"); err != nil {
			return out, err
		}
		out.On, out.Lasting = append(out.On, inj.selector), inj.kind.Lasting
		_, out.Linked = inj.fault.(chaos.Linked)
		if f.Timed && !out.Lasting {
			return out, p.place(randomPath(i)+".for", inj.kind.Fits(chaos.Entry{For: f.For.Low}))
		}
	}
	return out, nil
}

// fitting are the targets that a fault may be drawn on: its own, or those of the whole schedule that it can be aimed at.
func (p *Plan) fitting(o Options, f scenarios.RandomFault) ([]string, error) {
	k, known := lookup(o.Catalog.Faults, f.Use)
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

// drawnInjection makes an injection with the values of its ranges drawn.
func (p *Plan) drawnInjection(o Options, i int, on string, random *rand.Rand) (injection, error) {
	return p.randomInjection(o, i, on, func(last int64) int64 { return random.Int64N(last + 1) })
}

func (p *Plan) randomInjection(o Options, i int, on string, pick func(int64) int64) (injection, error) {
	f := p.scenario.Random.Faults[i]
	params := f.Params
	if k, ok := lookup(o.Catalog.Faults, f.Use); ok && len(params.Keys()) == 0 && k.Sample != "" {
		var err error
		if params, err = scenarios.ParseParams(k.Sample); err != nil {
			return injection{}, fmt.Errorf("sample of %s: %w", k.Name, err)
		}
	}
	params, err := params.Settle(pick)
	if err != nil {
		return injection{}, err
	}
	inj, err := p.injection(o, asked{path: randomPath(i), key: "use", use: f.Use, on: on, params: params})
	inj.entry = i + 1
	return inj, err
}

func lookup(kinds []chaos.Kind, name string) (chaos.Kind, bool) {
	for _, k := range kinds {
		if k.Name == name {
			return k, true
		}
	}
	return chaos.Kind{}, false
}
