package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/images"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

// byHand is a backend's topology in a network that compose runs, with everything as a scenario has it that sets nothing.
type byHand struct {
	backend  string
	profile  int // topology.Maker.Profile
	network  netip.Prefix
	topology topology.Topology
	health   func(port int) []string // topology.Maker.Health
	specs    []node.Spec
	nodes    []*cluster.Node
}

// The network of docker-compose.yml: the first two numbers of its addresses, and the variable of .env that replaces them. Networks of runs are
// in 10.128.0.0/10.
const (
	composeNet   = "10.127"
	composeNetIn = "LOCKQUAKE_NET"
)

// newByHand makes the topology. Each backend has addresses of its own, by topology.Maker.Profile.
func newByHand(name string) (byHand, error) { return newByHandIn(name, composeNet) }

// newByHandIn makes it in another network, such as 10.99.
func newByHandIn(name, network string) (byHand, error) {
	whole, err := netip.ParsePrefix(network + ".0.0/16")
	if err != nil {
		return byHand{}, cli.Usagef("%s is %q; write the first two numbers of a network's addresses, such as %s", composeNetIn, network, composeNet)
	}
	for _, b := range all.All() {
		if b.Name != name {
			continue
		}
		t, err := b.New(topology.Common{TTL: scenarios.DefaultTTL, Lock: b.Locks[0].Name}, func(any) error { return nil })
		if err != nil {
			return byHand{}, fmt.Errorf("topology of %s: %w", name, err)
		}
		base := whole.Addr().As4()
		base[2] = byte(b.Profile)
		p := byHand{
			backend: name, profile: b.Profile, network: netip.PrefixFrom(netip.AddrFrom4(base), 24),
			topology: t, health: b.Health, specs: t.Specs(),
		}
		p.nodes = cluster.At(p.specs, p.network)
		return p, nil
	}
	return byHand{}, cli.Usagef("there is no backend %q; `lockquake list backends` lists them", name)
}

// nodeCommands are what the containers of docker-compose.yml run beside the servers.
func nodeCommands(std cli.Streams) []*cobra.Command {
	var check bool
	ready := &cobra.Command{
		Use:   "ready BACKEND",
		Short: "Bring the nodes of a compose profile together, and tell whether they serve",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if check {
				return asked(readyFile)
			}
			return keepReady(c.Context(), std, args[0])
		},
	}
	ready.Flags().BoolVar(&check, "check", false, "only tell whether the one that runs in this container found them serving")
	return []*cobra.Command{ready, {
		Use:   "serves BACKEND NODE",
		Short: "Ask one node of a compose profile whether it serves",
		Args:  cobra.ExactArgs(2),
		RunE:  func(c *cobra.Command, args []string) error { return serves(c.Context(), args[0], args[1]) },
	}}
}

var imagesDoc = `Images makes the images of the nodes that the container engine does not have, or that were made from other Dockerfiles, and that of this
program. The program carries the Dockerfiles. Where no registry answers, the base image is made out of Debian's packages, as root.

The images of clients in other languages are made only when they are named: lockquake images ` + strings.Join(imagestore.OnDemand, " ") + `.`

func imagesCommand(std cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use:       "images [NAME...]",
		Short:     "Make the images of the nodes",
		Long:      imagesDoc,
		ValidArgs: images.Names(),
		Args: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				if !slices.Contains(images.Names(), name) {
					return cli.Usagef("images: there is no image %q; there are %s", name, strings.Join(images.Names(), ", "))
				}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch err := images.Build(c.Context(), std.Err, args...); {
			case errors.Is(err, images.ErrMissing):
				return cli.Exit{Code: cli.CodeMissing} // it was told
			case err != nil || len(args) > 0:
				return err
			}
			ref, err := cluster.SelfImage(c.Context())
			if err == nil {
				_, err = fmt.Fprintln(std.Out, ref)
			}
			return err
		},
	}
}

// readyFile is there while the nodes serve.
const readyFile = cluster.ContainerData + "/ready"

func asked(file string) error {
	if _, err := os.Stat(file); err != nil {
		return engine.MissingError{Text: "the nodes do not serve yet"}
	}
	return nil
}

// keepReady asks again and again whether the topology serves, which also forms it where its nodes have to be introduced
// to each other.
func keepReady(ctx context.Context, std cli.Streams, backend string) error {
	p, err := newByHandIn(backend, cmp.Or(os.Getenv(composeNetIn), composeNet))
	if err != nil {
		return err
	}
	service := p.topology.Service(cluster.Handles(p.nodes))
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

// serves asks one node.
func serves(ctx context.Context, backend, node string) error {
	p, err := newByHandIn(backend, cmp.Or(os.Getenv(composeNetIn), composeNet))
	if err != nil {
		return err
	}
	service := p.topology.Service(cluster.Handles(p.nodes))
	defer func() { _ = service.Close() }()
	answer, err := service.Ask(ctx, node, "serves")
	if err == nil && answer != "true" {
		err = engine.MissingError{Text: node + " does not serve"}
	}
	return err
}
