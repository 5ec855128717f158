package nodes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/gobuild"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

// OfSuite reports whether a word names stories of the regression suite, and no file.
func OfSuite(word string) bool {
	return strings.HasPrefix(word, suite.Folder) && !strings.Contains(word, ".yaml") && !strings.Contains(word, ".yml")
}

// Hellos asks the programs that stand in for lockquake's own client.
func (n *Source) Hellos(ctx context.Context, log *slog.Logger) suite.Ask {
	return func(s scenarios.Scenario) ([]*wire.Hello, error) {
		o, err := n.Options(ctx, s)
		var hellos []*wire.Hello
		if err == nil {
			o.Log = log
			hellos, err = engine.Hellos(ctx, o)
		}
		if err != nil {
			return nil, errors.New(cli.InOneLine(err))
		}
		return hellos, nil
	}
}

// Source is what the runs of a command line have in common: their nodes.
type Source struct {
	Flags    *Flags
	Catalog  engine.Catalog
	images   map[string]string
	client   string // a --set that makes it the scenario's; "": none
	Lock     string // of the run, BACKEND/LOCK, where it is that of a story of the regression suite
	Attached *engine.Attached
	choose   chooser
	other    string // the program that SelfVariable names in place of this one, or ""
	Builder  gobuild.Builder
}

// Options are those of a run of a scenario.
func (n *Source) Options(ctx context.Context, s scenarios.Scenario) (o engine.Options, err error) {
	if n.client != "" {
		if s, err = s.With([]string{n.client}); err != nil {
			return o, err
		}
	}
	o = engine.Options{
		Request: engine.Request{Scenario: s, Catalog: n.Catalog, Images: n.images, Attached: n.Attached},
		Version: cli.Version, Libraries: all.Libraries(s.Backend.Use, s.Backend.Lock), ClientModules: all.OfClient,
	}
	if s.Backend.Use == external.Name && slices.Contains(s.Backend.Params.Keys(), "endpoints") {
		n.choose.outward = true // they are in no network of the run's own
	}
	if o.Provider, o.ProviderReason, err = n.choose.pick(ctx, s, n.Catalog); err != nil {
		return o, err
	}
	o.Program = standIn(o.Provider.Name(), n.images, n.other)
	o.Built, err = n.buildClients(ctx, s)
	return o, err
}

// standIn names what runs the clients, where that is not this program: another image, or another program of this
// machine.
func standIn(provider string, images map[string]string, other string) string {
	if provider == inproc {
		return ""
	}
	if image := images[node.SelfProgram]; image != "" {
		return "image " + image
	}
	return other
}

// Replay is the command that repeats a run, but for its seed.
func (n *Source) Replay(name string, set []string, provider string) string {
	words := []string{"run", name}
	if OfSuite(name) {
		words = append(words, "--lock", n.Lock)
	}
	if provider != inproc {
		words = append(words, "--provider", provider)
	}
	for _, s := range set {
		words = append(words, "--set", s)
	}
	for _, i := range n.Flags.Images {
		words = append(words, "--image", i)
	}
	for _, c := range n.Flags.Clients {
		words = append(words, "--client", c)
	}
	if n.Flags.Attach.File != "" {
		words = append(words, "--attach", n.Flags.Attach.File)
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
