package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/cmd/lockquake/words"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/clientcheck"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

const clientDoc = `Check tests a client of your own: a program that speaks the protocol of docs/protocol.md. A command that
begins with a folder is built from the Go sources there, with the module versions that follow it (docs/clients.md).
Check starts the service, the register, and one process of the program per check, and talks to it as a run would. It
prints a line per check: ok, or what is wrong and in which frame.

Exit codes: 0 all checks passed, 1 a check failed, 2 bad usage, 3 something needed is missing.`

// clientCheckFlags is the command line of client check.
type clientCheckFlags struct {
	nodes         nodes.Flags
	backend, lock string
	image         string
	verbose       bool
}

func clientCommand(std cli.Streams) *cobra.Command {
	var f clientCheckFlags
	check := &cobra.Command{
		Use:   "check -- COMMAND...",
		Short: "Test a client against the protocol",
		Long:  clientDoc,
		Example: `  lockquake client check --backend redis -- python3 clients/python/redis_lock.py
  lockquake client check --backend redis -- clients/go/redsync github.com/go-redsync/redsync/v4@v4.0.3
  lockquake client check --backend zookeeper --client-image python:3.12 -- python3 my_lock.py`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("client check: no program is given; write it after --, such as `lockquake client check -- python3 my_lock.py`")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c.Context(), std, args) },
	}
	fl := check.Flags()
	fl.StringVar(&f.backend, "backend", "redis",
		"the service that the client uses; 'lockquake list backends' has them")
	fl.StringVar(&f.lock, "lock", "", "the lock that it implements; not given: the backend's default")
	fl.StringVar(&f.image, "client-image", "", "image of the client's containers, if the first word of the command does not imply it")
	fl.StringVar(&f.nodes.Provider, "provider", "auto",
		"how nodes run: docker (containers), local (processes), or auto: docker if an engine answers")
	fl.StringArrayVar(&f.nodes.Images, "image", nil,
		"image of a kind of node instead of the project's own, such as redis=redis:7.4; may be repeated")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "log progress to standard error")
	words.CompleteBackendAndLock(check)
	c := &cobra.Command{
		Use: "client", Short: "Test a client of your own", Long: clientDoc, Args: cli.VerbOnly,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(check)
	return c
}

// scenario returns a scenario with one client and two locks for each check. Its TTL is longer than the orders of a
// check take on a busy machine: a grant that expired meanwhile would look like a lock that excludes nobody.
func (f *clientCheckFlags) scenario(argv []string) (scenarios.Scenario, error) {
	program, err := nodes.ClientFromWords(argv)
	if err != nil {
		return scenarios.Scenario{}, err
	}
	program.Image = f.image
	key, err := json.Marshal(program)
	if err != nil {
		return scenarios.Scenario{}, err
	}
	lock := ""
	if f.lock != "" {
		lock = ", lock: " + f.lock
	}
	return scenarios.Parse(fmt.Appendf(nil, `name: client-check
claim: The client speaks the protocol.
backend: {use: %s%s, ttl: 30s}
workload: {use: counter, locks: %d, clients: %d, client: %s, resource: {use: register}}
expect: {judged: ">=0"}
`, f.backend, lock, 2*clientcheck.Count(), clientcheck.Count(), key), "client-check")
}

func (f *clientCheckFlags) run(ctx context.Context, std cli.Streams, argv []string) (err error) {
	s, err := f.scenario(argv)
	if err != nil {
		return err
	}
	nodes, err := f.nodes.Read()
	if err != nil {
		return err
	}
	tell := cli.NewProgress(std.Err, false)
	defer tell.Close()
	nodes.Builder.Tell = tell.Say
	stop := cli.Interruptible(ctx, tell)
	defer stop.Done()
	o, err := nodes.Options(stop.Ctx, s)
	if err = stop.Or(err); err != nil {
		return err
	}
	out, remove, err := state.Scratch("client")
	if err != nil {
		return err
	}
	defer func() { _ = remove() }()
	o.Out = out
	o.Log, o.Started = cli.Logger(std.Err, f.verbose), time.Now()
	bench, err := engine.OpenClientBench(stop.Ctx, o)
	if err = stop.Or(err); err != nil {
		return err
	}
	right := true
	defer func() {
		err = errors.Join(err, bench.Close(context.WithoutCancel(ctx)))
		if said := bench.LastWords(); !right && said != nil {
			fmt.Fprintln(std.Err, said)
		}
	}()
	right, err = clientcheck.Run(stop.Ctx, clientcheck.Options{
		Start: func(ctx context.Context, number int) (clientcheck.Process, error) {
			n, _, err := bench.Client(number)
			if err == nil {
				err = n.Process.Start(ctx)
			}
			if err != nil {
				return clientcheck.Process{}, err
			}
			streams := n.Process.Stdio()
			return clientcheck.Process{In: streams.In, Out: streams.Out, Ended: n.Process.Exited()}, nil
		},
		Frame: func(number int) (*wire.Start, error) {
			_, st, err := bench.Client(number)
			if err == nil {
				st.Locks = st.Locks[2*number : 2*number+2]
			}
			return st, err
		},
		Tell: func(check string, wrong []string) {
			if len(wrong) == 0 {
				wrong = []string{"ok"}
			}
			for _, line := range wrong {
				fmt.Fprintf(std.Out, "%-10s  %s\n", check, line)
			}
		},
	})
	if err == nil && !right {
		err = cli.Exit{Code: cli.CodeFailed}
	}
	return err
}
