// Package asnode implements the verb node: what this program runs as on the nodes of a run.
package asnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	etcdnode "github.com/lockquake/lockquake/backends/etcd/node"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/internal/agent"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/agent/disk"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/client"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/relay"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
	resources "github.com/lockquake/lockquake/workloads/resource/all"
	"github.com/lockquake/lockquake/workloads/resource/objects"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

const nodeDoc = `Node has the programs that lockquake starts on the nodes of a run; you never need to start them. Client,
register, replica, objects and ledger speak the protocol of docs/protocol.md over standard streams, and end when their
standard input does. Agent acts on the processes of a run over standard streams, and undoes all of it when its input
ends.`

// Command returns the verb node. Nodes that speak a protocol use std directly, not people.
func Command(people, std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:    "node",
		Short:  "Be a node of a run",
		Long:   nodeDoc,
		Hidden: true,
		Args:   cli.VerbOnly,
		RunE:   func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:   "client",
		Short: "Be a client process: many lock users",
		Args:  cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return client.Main(c.Context(), client.Options{
				Backends: listed.Clients(all.All()), Workloads: workloads.All(), Resources: resources.All(),
				In: std.In, Out: std.Out, Version: cli.Version, Libraries: all.Built(), InProcess: std.Goroutine,
			})
		},
	}, listening("register", ":7070", "Be the register: the resource that locks protect in a run", std,
		func(ctx context.Context, o resource.Options) error {
			o.Sequencers = sequencers
			return register.Main(ctx, o)
		}), listening("replica", ":7071", "Be one replica of a replicated resource", std, register.Replica),
		objectsCommand(std), &cobra.Command{
			Use:   "ledger RESOURCE",
			Short: "Be the ledger of a resource in a real service: create its store, and report its log",
			Args:  cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				return resource.Ledger(c.Context(), resource.Options{In: std.In, Out: std.Out, Version: cli.Version},
					resources.All(), args[0])
			},
		}, &cobra.Command{
			Use:   "agent",
			Short: "Act on the processes of a run from the host's pid namespace",
			Args:  cli.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				return agent.Main(c.Context(), std.In, std.Out, mechanisms.All())
			},
		}, &cobra.Command{
			Use:                "etcd [ETCD-FLAGS]",
			Short:              "Be an etcd member: the real server, with all of etcd's own flags",
			DisableFlagParsing: true,
			RunE:               func(_ *cobra.Command, args []string) error { return etcdnode.RunNode(args) },
		}, &cobra.Command{
			Use:                "on-disk DEVICE DIRECTORY USER PROGRAM ARGV...",
			Short:              "Mount a disk for this process alone, switch to a user (0: keep the current one), and run a program on it",
			Args:               cobra.MinimumNArgs(5),
			DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				user, err := strconv.ParseUint(args[2], 10, 31)
				if err != nil {
					return cli.Usagef("USER is %q; it must be a number", args[2])
				}
				return disk.OnDisk(args[0], args[1], int(user), args[3:])
			},
		})
	c.AddCommand(reachCommand(std))
	c.AddCommand(swarmCommands(std)...)
	c.AddCommand(compose.NodeCommands(people)...)
	return c
}

// swarmCommands returns the verbs that connect the supervisor to the hosts of a swarm.
func swarmCommands(std cli.Streams) []*cobra.Command {
	return []*cobra.Command{{
		Use:   "hub",
		Short: "Dial into the networks of a swarm for the supervisor, over standard streams",
		Args:  cli.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return relay.Hub(c.Context(), std.In, std.Out) },
	}, {
		Use:   "relay",
		Short: "Forward connections that present the run's key to the engine of this host",
		Args:  cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			key, err := relay.ParseKey(os.Getenv(relay.KeyVariable))
			if err != nil {
				return cli.Usagef("%s: %v", relay.KeyVariable, err)
			}
			return relay.Serve(c.Context(), key, ":"+relay.Port, cluster.EngineSocket)
		},
	}}
}

// listening returns the verb of a node that serves users at an address.
func listening(kind, address, short string, std cli.Streams,
	serve func(context.Context, resource.Options) error,
) *cobra.Command {
	c := &cobra.Command{Use: kind, Short: short, Args: cli.NoArgs}
	listen := c.Flags().String("listen", address, "address to listen on, host:port")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return serve(c.Context(), resource.Options{Listen: *listen, In: std.In, Out: std.Out, Version: cli.Version})
	}
	return c
}

// objectsCommand returns the verb of an object store, which also has a directory.
func objectsCommand(std cli.Streams) *cobra.Command {
	var dir string
	c := listening("objects", ":7072", "Be an object store over HTTP: a resource that locks protect in a run", std,
		func(ctx context.Context, o resource.Options) error {
			return objects.Main(ctx, o, dir)
		})
	c.Flags().StringVar(&dir, "dir", ".", "directory of its objects")
	return c
}

// asker is a separate connection to the lock service for checking sequencers.
type asker struct {
	lock.SequencerChecker
	locker lock.Locker
	conn   backends.Connection
}

// Close closes the locker and the connection.
func (a asker) Close() error { return errors.Join(a.locker.Close(), a.conn.Close()) }

// sequencers connects to the lock service that access names, as a client does.
func sequencers(ctx context.Context, access json.RawMessage) (resource.SequencerChecker, error) {
	var a backends.Access
	if err := json.Unmarshal(access, &a); err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	for _, b := range all.All() {
		l, ok := b.Lock(a.Lock)
		if b.Name != a.Backend || !ok {
			continue
		}
		conn, err := l.Dial(ctx, a)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", a.Backend, err)
		}
		locker, err := conn.Locker(ctx, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s: %w", a.Backend, err), conn.Close())
		}
		c, ok := locker.(lock.SequencerChecker)
		if !ok {
			return nil, errors.Join(fmt.Errorf("lock %s of %s has no sequencers to check", a.Lock, a.Backend),
				locker.Close(), conn.Close())
		}
		return asker{c, locker, conn}, nil
	}
	return nil, fmt.Errorf("there is no lock %s of %s", a.Lock, a.Backend)
}

// InProcess is the main function of a node that runs as a goroutine: the same verb on other streams.
func InProcess(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	std := cli.Streams{In: stdin, Out: stdout, Err: io.Discard, Goroutine: true}
	root := &cobra.Command{Use: "lockquake", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Command(std, std))
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// reachCommand returns the verb that reports which addresses a client can connect to from its place.
func reachCommand(std cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   engine.ReachVerb + " ADDRESS...",
		Short: "Report the addresses that cannot be reached from here, and the duration of the fastest connect",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			said, took := make([]string, len(args)), make([]int64, len(args))
			var all sync.WaitGroup
			for i, address := range args {
				all.Go(func() {
					var err error
					if took[i], err = fastestConnect(c.Context(), address); err != nil {
						said[i] = fmt.Sprintf("%s cannot be reached: %v", address, errors.Unwrap(err))
					}
				})
			}
			all.Wait()
			for _, line := range append(slices.DeleteFunc(said, func(s string) bool { return s == "" }),
				engine.ReachDone+strconv.FormatInt(slices.Min(took), 10)) {
				if _, err := fmt.Fprintln(std.Out, line); err != nil {
					return err
				}
			}
			_, _ = io.Copy(io.Discard, std.In) // until the supervisor closes it
			return nil
		},
	}
}

// connects is the number of connects per address. The fastest is close to one round trip.
const connects = 5

// fastestConnect returns the duration of the fastest of several connects, in ns.
func fastestConnect(ctx context.Context, address string) (ns int64, err error) {
	ns = math.MaxInt64
	d := net.Dialer{Timeout: 5 * time.Second}
	for range connects {
		began := time.Now()
		conn, err := d.DialContext(ctx, "tcp", address)
		ns = min(ns, int64(time.Since(began)))
		if err == nil {
			err = conn.Close()
		}
		if err != nil {
			return ns, err
		}
	}
	return ns, nil
}
