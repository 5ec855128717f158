package main

import (
	"bytes"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/scenarios"
)

func showCommand(std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:               "show SCENARIO-NAME-OR-FILE...",
		Short:             "Print scenarios as YAML, twins and --set applied",
		Example:           "  lockquake show redlock-holder-pause > mine.yaml\n  lockquake show suite/late-release --lock redis/redislock\n  lockquake show --schema > scenario.schema.json",
		ValidArgsFunction: words.CompleteAnyScenario,
	}
	schema := c.Flags().Bool("schema", false,
		"print the JSON Schema of scenarios instead, for completion in editors (docs/scenarios.md)")
	var lock string
	words.AddLock(c, &lock)
	set := c.Flags().StringArray("set", nil,
		"replace a key of the scenario, such as workload.resource.guard=fence; may be repeated")
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case *schema && len(args) > 0:
			return cli.Usagef("show: --schema takes no scenario")
		case !*schema && len(args) == 0:
			return cli.Usagef("show: no scenario is named; `lockquake list scenarios` lists them")
		}
		return nil
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *schema {
			text, err := scenarios.Schema(vocabulary(nodes.Catalog()))
			if err == nil {
				_, err = std.Out.Write(text)
			}
			return err
		}
		var texts [][]byte
		for _, name := range args {
			some, err := textsOf(name, lock, *set, cli.NewProgress(std.Err, false).Say)
			if err != nil {
				return err
			}
			texts = append(texts, some...)
		}
		_, err := std.Out.Write(bytes.Join(texts, []byte("---\n")))
		return err
	}
	return c
}

// textsOf returns the scenarios that a word names, with keys replaced. Stories of the regression suite are those for
// the lock; without a lock and keys, they are the story files.
func textsOf(word, lock string, set []string, tell func(string, ...any)) (out [][]byte, err error) {
	if nodes.OfSuite(word) && lock == "" && len(set) == 0 {
		return words.StoryFiles(word)
	}
	none := func(scenarios.Scenario) ([]*wire.Hello, error) {
		return nil, errors.New("only run asks a client of your own for its features; `lockquake run --dry-run` starts nothing else")
	}
	list, err := words.Against{Lock: lock, Set: set, Ask: none, Tell: tell}.Load(word)
	for _, s := range list {
		if s, err = s.With(set); err != nil {
			return nil, err
		}
		out = append(out, s.Text)
	}
	return out, err
}

// vocabulary returns the names that a scenario can use, for its JSON Schema.
func vocabulary(c engine.Catalog) scenarios.Vocabulary {
	var v scenarios.Vocabulary
	for _, b := range c.Backends {
		i := instance(b.Name, b.Doc, func(decode decoder) (any,
			error,
		) {
			return b.New(topology.Common{Lock: b.Locks[0].Name}, decode)
		})
		for _, l := range b.Locks {
			i.Words = append(i.Words, l.Name)
		}
		i.Words = append(i.Words, backends.NoLock)
		v.Backends = append(v.Backends, i)
	}
	for _, w := range c.Workloads {
		v.Workloads = append(v.Workloads,
			instance(w.Name, w.Doc, func(decode decoder) (any, error) { return w.New(decode) }))
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

var errAsked = errors.New("only used for the keys")

// instance describes a name, with the struct that its own keys decode into.
func instance(name, doc string, start func(decode decoder) (any, error)) scenarios.Instance {
	i := scenarios.Instance{Word: scenarios.Word{Name: name, Doc: doc}}
	_, _ = start(func(into any) error {
		i.Own = into
		return errAsked
	})
	return i
}
