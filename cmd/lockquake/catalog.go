package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/all"
	faults "github.com/lockquake/lockquake/chaos/all"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	resources "github.com/lockquake/lockquake/workloads/resource/all"
)

// catalog is everything that a scenario may name.
func catalog() engine.Catalog {
	return engine.Catalog{
		Backends: all.All(), Workloads: workloads.All(), Faults: faults.Kinds(), Resources: resources.All(), Checkers: checkers.All(),
	}
}

// The values of --provider.
var providers = []string{"auto", "docker", "local"}

// chooseProvider returns the provider that --provider names, and why it is that one.
func chooseProvider(ctx context.Context, name string) (cluster.Provider, string, error) {
	return chooseProviderWith(ctx, name, cluster.ChooseOptions{})
}

func chooseProviderWith(ctx context.Context, name string, o cluster.ChooseOptions) (cluster.Provider, string, error) {
	if !slices.Contains(providers, name) {
		return nil, "", usagef("--provider: there is no provider %q; there are %s", name, strings.Join(providers, ", "))
	}
	o.Mechanisms = mechanisms.All()
	p, reason, err := cluster.Choose(ctx, name, o)
	if err != nil {
		return nil, "", engine.MissingError{Text: fmt.Sprintf("--provider %s: %v; `lockquake doctor` tells more", name, err)}
	}
	return p, reason, nil
}

// chooser finds the provider of each scenario: a backend without server nodes runs within this process, the others share
// one provider that is looked for once, when the first of them needs it.
type chooser struct {
	name string
	// outward says that clients must reach what this machine reaches: child processes then share its network.
	outward bool
	found   cluster.Provider
	reason  string
}

func (c *chooser) pick(ctx context.Context, s scenarios.Scenario, known engine.Catalog) (cluster.Provider, string, error) {
	if !slices.Contains(providers, c.name) {
		_, _, err := chooseProviderWith(ctx, c.name, cluster.ChooseOptions{Loopback: c.outward})
		return nil, "", err
	}
	for _, b := range known.Backends {
		if b.Name == s.Backend.Use && b.InProcess {
			return cluster.NewInproc(inProcess), "backend " + b.Name + " runs within lockquake's own process", nil
		}
	}
	if c.found == nil {
		var err error
		if c.found, c.reason, err = chooseProviderWith(ctx, c.name, cluster.ChooseOptions{Loopback: c.outward}); err != nil {
			return nil, "", err
		}
	}
	return c.found, c.reason, nil
}

// inProcess is the main function of a node that is a goroutine: the same verbs, on other streams.
func inProcess(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	std := streams{in: stdin, out: stdout, err: io.Discard, goroutine: true}
	root := newRoot(std, std)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}
