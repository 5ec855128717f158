package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/clientcheck"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/gobuild"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

const clientDoc = `Check tests a client of your own, a program that speaks the protocol of docs/protocol.md, before it is put into a run. A command that begins with a
folder is built there of Go sources, with the versions of modules behind it (docs/clients.md). It starts the service,
the register, and a process of the program for each check, speaks to it as a run would, and prints a line for each check: ok, or what is wrong
and in which frame.

Exit codes: 0 nothing is wrong, 1 something is, 2 bad usage, 3 something needed is missing.`

// clientCheckFlags is the command line of client check.
type clientCheckFlags struct {
	nodes         nodeFlags
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
				return cli.Usagef("client check: no program is named; write it behind --, such as `lockquake client check -- python3 my_lock.py`")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c.Context(), std, args) },
	}
	fl := check.Flags()
	fl.StringVar(&f.backend, "backend", "redis", "the service that the client locks on; 'lockquake list backends' has them")
	fl.StringVar(&f.lock, "lock", "", "the lock whose promises it makes; the backend's default where none is named")
	fl.StringVar(&f.image, "client-image", "", "image of the client's containers, where its first word does not tell")
	fl.StringVar(&f.nodes.provider, "provider", "auto", "what the nodes are: docker (containers), local (processes), or auto: docker where an engine answers")
	fl.StringArrayVar(&f.nodes.images, "image", nil, "image of a kind of node instead of the project's own, such as redis=redis:7.4; may be repeated")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "note on standard error what is done")
	completeBackendAndLock(check)
	c := &cobra.Command{
		Use: "client", Short: "Test a client of your own", Long: clientDoc, Args: cli.VerbOnly,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(check)
	return c
}

// scenario has a client for each check.
func (f *clientCheckFlags) scenario(argv []string) (scenarios.Scenario, error) {
	program, err := clientFromWords(argv)
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
backend: {use: %s%s, ttl: 2s}
workload: {use: counter, locks: 2, clients: %d, client: %s, resource: {use: register}}
expect: {judged: ">=0"}
`, f.backend, lock, clientcheck.Count(), key), "client-check")
}

func (f *clientCheckFlags) run(ctx context.Context, std cli.Streams, argv []string) (err error) {
	s, err := f.scenario(argv)
	if err != nil {
		return err
	}
	nodes, err := f.nodes.read()
	if err != nil {
		return err
	}
	tell := cli.NewProgress(std.Err, false)
	defer tell.Close()
	nodes.builder.Tell = tell.Say
	stop := cli.Interruptible(ctx, tell)
	defer stop.Done()
	o, err := nodes.options(stop.Ctx, s)
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
				err = n.Start(ctx)
			}
			if err != nil {
				return clientcheck.Process{}, err
			}
			return clientcheck.Process{In: n.Stdio().In, Out: n.Stdio().Out, Ended: n.Exited()}, nil
		},
		Frame: func(number int) (*wire.Start, error) {
			_, st, err := bench.Client(number)
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

// clientFromWords reads the words that name a program in the place of lockquake's own client: a command, or the folder of a Go program with the versions of
// modules that it is built with, and -tags=A,B. Relative names in it begin in the current folder.
func clientFromWords(words []string) (c scenarios.Client, err error) {
	if len(words) == 0 {
		return c, cli.Usagef("--client: it names no program")
	}
	if c.Dir, err = os.Getwd(); err != nil {
		return c, err
	}
	if info, err := os.Stat(words[0]); err != nil || !info.IsDir() {
		c.Run = words
		return c, nil
	}
	c.Go = words[0]
	for _, word := range words[1:] {
		tags, ok := strings.CutPrefix(word, "-tags=")
		if ok {
			c.Tags = strings.Split(tags, ",")
			continue
		}
		if _, ok := scenarios.ReadPin(word); !ok {
			return c, cli.Usagef("%s is a folder, so that a Go client is built there, and %q is neither MODULE@VERSION, MODULE=OTHER@VERSION, MODULE=./FOLDER nor -tags=TAG", c.Go, word)
		}
		c.With = append(c.With, word)
	}
	return c, nil
}

// buildClients builds the programs that a scenario names for its clients. It returns their paths, "" for one that is not made of Go sources.
func (n *nodeSource) buildClients(ctx context.Context, s scenarios.Scenario) ([]string, error) {
	var paths []string
	for _, c := range s.Programs() {
		path, err := n.buildClient(ctx, s, c)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func (n *nodeSource) buildClient(ctx context.Context, s scenarios.Scenario, c scenarios.Client) (string, error) {
	if c.Go == "" {
		return "", nil
	}
	dir, err := engine.ClientFolder(s, c)
	if err != nil {
		return "", err
	}
	if n.builder.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		n.builder.Cache = filepath.Join(cache, "lockquake", "clients")
	}
	source := gobuild.Source{Dir: c.Go, Tags: c.Tags}
	if !filepath.IsAbs(source.Dir) {
		source.Dir = filepath.Join(dir, source.Dir)
	}
	for _, text := range c.With {
		p, _ := scenarios.ReadPin(text) // the scenario was read with it
		if p.Version == "" && !filepath.IsAbs(p.Replacement) {
			p.Replacement = filepath.Join(dir, p.Replacement)
		}
		source.With = append(source.With, gobuild.Module{Path: p.Module, Replacement: p.Replacement, Version: p.Version})
	}
	path, err := n.builder.Build(ctx, source)
	if err != nil {
		return "", engine.MissingError{Text: c.String() + ": " + err.Error()}
	}
	return path, nil
}
