package main

import (
	"errors"
	"slices"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/scenarios"
)

// vocabulary is what a scenario can name, as its JSON Schema has it.
func vocabulary(c engine.Catalog) scenarios.Vocabulary {
	var v scenarios.Vocabulary
	for _, b := range c.Backends {
		i := instance(b.Name, b.Doc, func(decode decoder) (any, error) { return b.New(topology.Common{Lock: b.Locks[0].Name}, decode) })
		for _, l := range b.Locks {
			i.Words = append(i.Words, l.Name)
		}
		i.Words = append(i.Words, backends.NoLock)
		v.Backends = append(v.Backends, i)
	}
	for _, w := range c.Workloads {
		v.Workloads = append(v.Workloads, instance(w.Name, w.Doc, func(decode decoder) (any, error) { return w.New(decode) }))
	}
	for _, r := range c.Resources {
		i := scenarios.Instance{Word: scenarios.Word{Name: r.Name, Doc: r.Doc}}
		for _, g := range r.Guards {
			i.Words = append(i.Words, g.Name)
		}
		v.Resources = append(v.Resources, i)
	}
	for _, f := range c.Faults {
		v.Faults = append(v.Faults, instance(f.Name, f.Doc, func(decode decoder) (any, error) { return f.New(decode) }))
		for _, k := range c.Checkers {
			if k.PerFault != "" {
				v.Numbered = append(v.Numbered, results.FaultMeasure(k.PerFault, f.Name, ""))
			}
		}
	}
	for _, q := range c.Checkers.Quantities() {
		v.Quantities = append(v.Quantities, scenarios.Word{Name: q.Name, Doc: report.Plain(q.Doc)})
	}
	slices.Sort(v.Numbered)
	return v
}

type decoder = func(into any) error

var errAsked = errors.New("only asked for the keys")

// instance is what can be named, with the struct of its own keys: the one that it would have decoded.
func instance(name, doc string, start func(decode decoder) (any, error)) scenarios.Instance {
	i := scenarios.Instance{Word: scenarios.Word{Name: name, Doc: doc}}
	_, _ = start(func(into any) error {
		i.Own = into
		return errAsked
	})
	return i
}
