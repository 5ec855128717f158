package compose

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

// ByHand is a backend's topology in a network that compose runs, with the defaults of every setting.
type ByHand struct {
	backend  string
	Profile  int // topology.Maker.Profile
	Network  netip.Prefix
	Topology topology.Topology
	health   func(port int) []string // topology.Maker.Health
	Specs    []node.Spec
	Nodes    []*cluster.Node
}

// The network of docker-compose.yml: the first two numbers of its addresses, and the variable in .env that overrides
// them. Networks of runs are in 10.128.0.0/10.
const (
	composeNet  = "10.127"
	NetVariable = "LOCKQUAKE_NET"
)

// New returns the topology of a backend. Each backend has its own addresses, by topology.Maker.Profile.
func New(name string) (ByHand, error) { return NewIn(name, composeNet) }

// NewIn returns the topology in another network, such as 10.99.
func NewIn(name, network string) (ByHand, error) {
	whole, err := netip.ParsePrefix(network + ".0.0/16")
	if err != nil {
		return ByHand{}, cli.Usagef("%s is %q; write the first two numbers of a network's addresses, such as %s",
			NetVariable, network, composeNet)
	}
	for _, b := range all.All() {
		if b.Name != name {
			continue
		}
		t, err := b.New(topology.Common{TTL: scenarios.DefaultTTL, Lock: b.Locks[0].Name},
			func(any) error { return nil })
		if err != nil {
			return ByHand{}, fmt.Errorf("topology of %s: %w", name, err)
		}
		base := whole.Addr().As4()
		base[2] = byte(b.Profile)
		p := ByHand{
			backend: name, Profile: b.Profile, Network: netip.PrefixFrom(netip.AddrFrom4(base), 24),
			Topology: t, health: b.Health, Specs: t.Specs(),
		}
		p.Nodes = cluster.At(p.Specs, p.Network)
		return p, nil
	}
	return ByHand{}, cli.Usagef("there is no backend %q; `lockquake list backends` lists them", name)
}

// NodeCommands returns the verbs that containers of docker-compose.yml run besides the servers.
func NodeCommands(std cli.Streams) []*cobra.Command {
	var check bool
	ready := &cobra.Command{
		Use:   "ready BACKEND",
		Short: "Join the nodes of a compose profile, and report whether they serve",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if check {
				return asked(readyFile)
			}
			return keepReady(c.Context(), std, args[0])
		},
	}
	ready.Flags().BoolVar(&check, "check", false,
		"only report whether the instance in this container found them serving")
	return []*cobra.Command{ready, {
		Use:   "serves BACKEND NODE",
		Short: "Ask one node of a compose profile whether it serves",
		Args:  cobra.ExactArgs(2),
		RunE:  func(c *cobra.Command, args []string) error { return serves(c.Context(), args[0], args[1]) },
	}}
}

// readyFile exists while the nodes serve.
const readyFile = cluster.ContainerData + "/ready"

func asked(file string) error {
	if _, err := os.Stat(file); err != nil {
		return engine.MissingError{Text: "the nodes do not serve yet"}
	}
	return nil
}

// keepReady asks repeatedly whether the topology serves. Asking also forms clusters whose nodes must be introduced to
// each other.
func keepReady(ctx context.Context, std cli.Streams, backend string) error {
	p, err := NewIn(backend, cmp.Or(os.Getenv(NetVariable), composeNet))
	if err != nil {
		return err
	}
	service := p.Topology.Service(cluster.Handles(p.Nodes))
	defer func() { _ = service.Close() }()
	told := ""
	for {
		pause, text := time.Second, "serves"
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := service.Ready(bounded)
		cancel()
		if err == nil {
			err = os.WriteFile(readyFile, nil, 0o644)
		} else {
			_ = os.Remove(readyFile)
		}
		if err != nil {
			pause, text = 100*time.Millisecond, err.Error()
		}
		if text != told {
			fmt.Fprintf(std.Err, "%s: %s\n", backend, text)
			told = text
		}
		if clock.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// serves asks one node whether it serves.
func serves(ctx context.Context, backend, node string) error {
	p, err := NewIn(backend, cmp.Or(os.Getenv(NetVariable), composeNet))
	if err != nil {
		return err
	}
	service := p.Topology.Service(cluster.Handles(p.Nodes))
	defer func() { _ = service.Close() }()
	answer, err := service.Ask(ctx, node, "serves")
	if err == nil && answer != "true" {
		err = engine.MissingError{Text: node + " does not serve"}
	}
	return err
}
