package nodes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/cmd/lockquake/asnode"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/scenarios"
)

// inproc is the name of the provider that runs nodes as goroutines.
const inproc = "inproc"

// Providers are the values of --provider.
var Providers = []string{"auto", "docker", "local", "swarm"}

// Choose returns the provider for a value of --provider, and the reason for the choice.
func Choose(ctx context.Context, name string) (cluster.Provider, string, error) {
	return ChooseWith(ctx, name, cluster.ChooseOptions{})
}

// ChooseWith is Choose with options.
func ChooseWith(ctx context.Context, name string, o cluster.ChooseOptions) (cluster.Provider, string, error) {
	if err := CheckProvider(name); err != nil {
		return nil, "", err
	}
	o.Mechanisms = mechanisms.All()
	p, reason, err := cluster.Choose(ctx, name, o)
	if err != nil {
		return nil, "", engine.MissingError{Text: fmt.Sprintf("--provider %s: %v; see `lockquake doctor`", name,
			err)}
	}
	return p, reason, nil
}

// CheckProvider validates a value of --provider.
func CheckProvider(name string) error {
	if !slices.Contains(Providers, name) {
		return cli.Usagef("--provider: there is no provider %q; there are %s", name, strings.Join(Providers, ", "))
	}
	return nil
}

// chooser chooses the provider of each scenario. A backend without server nodes runs in this process. All others share
// one provider, which is chosen when the first of them needs it.
type chooser struct {
	name string
	// outward means that clients must reach what this machine reaches. As child processes they then share its network.
	outward bool
	found   cluster.Provider
	reason  string
}

func (c *chooser) pick(ctx context.Context, s scenarios.Scenario, known engine.Catalog) (cluster.Provider, string,
	error,
) {
	if err := CheckProvider(c.name); err != nil {
		return nil, "", err
	}
	for _, b := range known.Backends {
		if b.Name == s.Backend.Use && b.InProcess {
			return cluster.NewInproc(asnode.InProcess), "backend " + b.Name + " runs within lockquake's own process",
				nil
		}
	}
	if c.found == nil {
		var err error
		if c.found, c.reason, err = ChooseWith(ctx, c.name, cluster.ChooseOptions{Loopback: c.outward}); err != nil {
			return nil, "", err
		}
	}
	return c.found, c.reason, nil
}
