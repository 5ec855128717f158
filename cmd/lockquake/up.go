package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

const upDoc = `Up starts the servers of a run and prints their endpoints once they serve a write. It waits for Ctrl-C and
then removes them. --set sets keys of the scenario's backend section, such as --set version=3.4 or --set ttl=2s.

--format json prints the object that a client process gets as "access" in its start frame (docs/protocol.md). A program
that starts up should pass --until-eof and keep standard input open: the servers stop when it closes.`

// upPatience is how long the servers may take to serve.
const upPatience = 2 * time.Minute

func upCommand(std cli.Streams) *cobra.Command {
	var provider string
	var sets []string
	var untilEOF bool
	c := &cobra.Command{
		Use:   "up BACKEND",
		Short: "Start a backend's servers, print their endpoints, and wait for Ctrl-C",
		Long:  upDoc,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("up takes one backend: %s", strings.Join(compose.Backends(), ", "))
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(compose.Backends(), cobra.ShellCompDirectiveNoFileComp),
	}
	f := cli.AddFormat(c, "text", "json")
	c.Flags().StringVar(&provider, "provider", nodes.Providers[0], "how the servers run: auto, docker or local")
	c.Flags().StringArrayVar(&sets, "set", nil,
		"set a key of the backend section, such as version=3.4; may be repeated")
	c.Flags().BoolVar(&untilEOF, "until-eof", false, "also stop when standard input closes")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.Check(); err != nil {
			return err
		}
		u, err := newUp(args[0], sets)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		if untilEOF {
			go func() {
				_, _ = io.Copy(io.Discard, std.In) // an error ends it as well
				stop()
			}()
		}
		if provider == "swarm" {
			return cli.Usagef("up --provider swarm: its servers are in a closed network between the hosts, which your clients cannot reach; there are auto, docker and local")
		}
		// Child processes listen on 127.0.0.1: clients on this machine cannot reach a run's own network.
		p, _, err := nodes.ChooseWith(ctx, provider, cluster.ChooseOptions{Loopback: true})
		if err != nil {
			return err
		}
		return u.run(ctx, p, func() error { return u.print(std, f.Value) })
	}
	return c
}

// up is a backend whose servers are started for external clients.
type up struct {
	topology topology.Topology
	access   backends.Access
}

// newUp parses the backend section of a scenario.
func newUp(backend string, sets []string) (*up, error) {
	i := slices.IndexFunc(all.All(), func(b listed.Backend) bool { return b.Name == backend && !b.InProcess })
	if i < 0 {
		return nil, cli.Usagef("up: there is no backend %q with servers; there are %s", backend,
			strings.Join(compose.Backends(), ", "))
	}
	s, err := scenarios.Parse([]byte("name: up\nclaim: Servers for other clients.\nbackend: {use: "+
		backend+"}\nworkload: {use: acquire-release}\n"), "up")
	if err != nil {
		return nil, err
	}
	for j, set := range sets {
		sets[j] = "backend." + set
	}
	if s, err = s.With(sets); err != nil {
		return nil, err
	}
	b := all.All()[i]
	l, ok := b.Lock(s.Backend.Lock)
	if !ok {
		return nil, cli.Usagef("up --set: %s has no lock %q; `lockquake list locks` lists them", backend,
			s.Backend.Lock)
	}
	t, err := b.New(topology.Common{Nodes: s.Backend.Nodes, TTL: s.Backend.TTL, Lock: l.Name}, s.Backend.Params.Decode)
	if err != nil {
		return nil, cli.Usagef("up --set: %v", err)
	}
	return &up{topology: t, access: backends.Access{Backend: backend, Lock: l.Name, TTL: s.Backend.TTL}}, nil
}

// run starts the servers, calls serves once they serve, waits for the end of ctx, and removes them.
func (u *up) run(ctx context.Context, p cluster.Provider, serves func() error) (err error) {
	logs, remove, err := state.Scratch("up") // after a failure the logs stay, until clean removes them
	if err != nil {
		return fmt.Errorf("make a directory for the servers' logs: %w", err)
	}
	u.access.Run = strings.ToLower(rand.Text()[:8])
	c, err := p.Open(ctx, cluster.Request{Run: u.access.Run, Specs: u.topology.Specs(), LogDir: logs})
	if err != nil {
		return errors.Join(err, remove())
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, c.Close(bounded))
		if err == nil {
			err = remove()
		}
	}()
	service := u.topology.Service(cluster.Handles(c.Nodes))
	defer func() { _ = service.Close() }()
	err = cluster.StartAll(ctx, c.Nodes)
	if err == nil {
		err = topology.Until(ctx, upPatience, service.Ready)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return engine.MissingError{Text: fmt.Sprintf("%s does not serve: %v; the logs of its servers are in %s",
			u.access.Backend, err, logs)}
	}
	if u.access, err = listed.Reach(u.access, u.topology, cluster.Handles(c.Nodes)); err != nil {
		return err
	}
	if err := serves(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// print shows where the servers listen.
func (u *up) print(std cli.Streams, format string) error {
	if format == "json" {
		return cli.WriteJSON(std.Out, u.access)
	}
	var table figure.Table
	for i, s := range u.topology.Specs() {
		for _, port := range s.Ports {
			table = append(table, []string{s.Name, port.Name, u.access.Nodes[i].Addresses[port.Name]})
		}
	}
	if _, err := io.WriteString(std.Out, table.Text()); err != nil {
		return err
	}
	if u.access.Password != "" {
		fmt.Fprintf(std.Out, "password %s\n", u.access.Password)
	}
	fmt.Fprintln(std.Err, "Ctrl-C stops them")
	return nil
}
