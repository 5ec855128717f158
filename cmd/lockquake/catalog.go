package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/external"
	faults "github.com/lockquake/lockquake/chaos/all"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/gobuild"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	resources "github.com/lockquake/lockquake/workloads/resource/all"
)

// catalog is everything that a scenario may name.
func catalog() engine.Catalog {
	return engine.Catalog{
		Backends: append(all.All(), external.Backend()), Workloads: workloads.All(), Faults: faults.Kinds(), Resources: resources.All(), Checkers: checkers.All(),
	}
}

// The values of --provider.
var providers = []string{"auto", "docker", "local", "swarm"}

// chooseProvider returns the provider that --provider names, and why it is that one.
func chooseProvider(ctx context.Context, name string) (cluster.Provider, string, error) {
	return chooseProviderWith(ctx, name, cluster.ChooseOptions{})
}

func chooseProviderWith(ctx context.Context, name string, o cluster.ChooseOptions) (cluster.Provider, string, error) {
	if err := checkProvider(name); err != nil {
		return nil, "", err
	}
	o.Mechanisms = mechanisms.All()
	p, reason, err := cluster.Choose(ctx, name, o)
	if err != nil {
		return nil, "", engine.MissingError{Text: fmt.Sprintf("--provider %s: %v; `lockquake doctor` tells more", name, err)}
	}
	return p, reason, nil
}

// checkProvider refuses a value of --provider.
func checkProvider(name string) error {
	if !slices.Contains(providers, name) {
		return cli.Usagef("--provider: there is no provider %q; there are %s", name, strings.Join(providers, ", "))
	}
	return nil
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
	if err := checkProvider(c.name); err != nil {
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

// nodeFlags say what the nodes of a verb's runs are, and where they run.
type nodeFlags struct {
	provider string
	images   []string
	clients  []string
	attach   attachFlags
}

func (f *nodeFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.provider, "provider", "auto", "what the nodes are: docker (containers), local (processes), swarm (containers on the hosts of a Docker Swarm), or auto: docker where an engine answers")
	fl.StringArrayVar(&f.images, "image", nil, "image of a kind of node instead of the project's own, such as redis=redis:7.4; may be repeated")
	fl.StringArrayVar(&f.clients, "client", nil, "program in the place of lockquake's own client, such as 'python3 my_lock.py', or 'FOLDER MODULE@VERSION' that is built: workload.client of the scenario (docs/clients.md); may be repeated: the clients take turns")
	f.attach.add(fl)
	// The flag was added above: this cannot fail.
	_ = c.RegisterFlagCompletionFunc("provider", cobra.FixedCompletions(providers, cobra.ShellCompDirectiveNoFileComp))
}

// read looks up what the flags name. What runs the clients in place of this program is taken from the environment.
func (f *nodeFlags) read() (*nodeSource, error) {
	s := &nodeSource{flags: f, catalog: catalog(), other: executable.Other()}
	var err error
	if s.images, err = parseImages(f.images); err != nil {
		return nil, err
	}
	if s.client, err = f.clientKey(); err != nil {
		return nil, err
	}
	if s.attached, err = f.attach.read(); err != nil {
		return nil, err
	}
	s.choose = chooser{name: f.provider, outward: s.attached != nil}
	return s, nil
}

// clientKey is the key of a scenario that --client stands for.
func (f *nodeFlags) clientKey() (string, error) {
	c, err := f.program()
	if c == nil || err != nil {
		return "", err
	}
	return c.Set()
}

// program is what --client names; nil: nothing.
func (f *nodeFlags) program() (*scenarios.Client, error) {
	var c *scenarios.Client
	for _, text := range f.clients {
		p, err := clientFromWords(strings.Fields(text))
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &p
		} else {
			c.Beside = append(c.Beside, p)
		}
	}
	return c, nil
}

// nodeSource is what the runs of a command line have in common: their nodes.
type nodeSource struct {
	flags    *nodeFlags
	catalog  engine.Catalog
	images   map[string]string
	client   string // a --set that makes it the scenario's; "": none
	lock     string // of the run, BACKEND/LOCK, where it is that of a story of the regression suite
	attached *engine.Attached
	choose   chooser
	other    string // the program that SelfVariable names in place of this one, or ""
	builder  gobuild.Builder
}

// options are those of a run of a scenario.
func (n *nodeSource) options(ctx context.Context, s scenarios.Scenario) (o engine.Options, err error) {
	if n.client != "" {
		if s, err = s.With([]string{n.client}); err != nil {
			return o, err
		}
	}
	o = engine.Options{
		Scenario: s, Catalog: n.catalog, Images: n.images, Attached: n.attached, Version: cli.Version,
		Libraries: all.Libraries(s.Backend.Use, s.Backend.Lock), ClientModules: all.OfClient,
	}
	if s.Backend.Use == external.Name && slices.Contains(s.Backend.Params.Keys(), "endpoints") {
		n.choose.outward = true // they are in no network of the run's own
	}
	if o.Provider, o.ProviderReason, err = n.choose.pick(ctx, s, n.catalog); err != nil {
		return o, err
	}
	o.Program = standIn(o.Provider.Name(), n.images, n.other)
	o.Built, err = n.buildClients(ctx, s)
	return o, err
}

// standIn names what runs the clients, where that is not this program: another image, or another program of this machine.
func standIn(provider string, images map[string]string, other string) string {
	if provider == inproc {
		return ""
	}
	if image := images[node.SelfProgram]; image != "" {
		return "image " + image
	}
	return other
}

// replay is the command that repeats a run, but for its seed.
func (n *nodeSource) replay(name string, set []string, provider string) string {
	words := []string{"run", name}
	if ofSuite(name) {
		words = append(words, "--lock", n.lock)
	}
	if provider != inproc {
		words = append(words, "--provider", provider)
	}
	for _, s := range set {
		words = append(words, "--set", s)
	}
	for _, i := range n.flags.images {
		words = append(words, "--image", i)
	}
	for _, c := range n.flags.clients {
		words = append(words, "--client", c)
	}
	if n.flags.attach.file != "" {
		words = append(words, "--attach", n.flags.attach.file)
	}
	for i, w := range words {
		words[i] = cli.Quoted(w)
	}
	words = append([]string{cli.Invocation}, words...)
	if n.other != "" && provider != inproc {
		words = append([]string{executable.SelfVariable + "=" + cli.Quoted(n.other)}, words...)
	}
	return strings.Join(words, " ")
}

// inProcess is the main function of a node that is a goroutine: the same verbs, on other streams.
func inProcess(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	std := cli.Streams{In: stdin, Out: stdout, Err: io.Discard, Goroutine: true}
	root := newRoot(std, std)
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}
