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

// OfSuite reports whether a word names stories of the regression suite rather than a file.
func OfSuite(word string) bool {
	return strings.HasPrefix(word, suite.Folder) && !strings.Contains(word, ".yaml") && !strings.Contains(word, ".yml")
}

// Hellos returns a function that starts the programs which replace the built-in client and returns their hellos.
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

// Source holds what the runs of a command line share: the choice of their nodes.
type Source struct {
	Flags    *Flags
	Catalog  engine.Catalog
	images   map[string]string
	client   string // the --set that selects this client in a scenario; "": none
	Lock     string // BACKEND/LOCK of the run, for stories of the regression suite
	Attached *engine.Attached
	choose   chooser
	other    string // program that SelfVariable names to replace this one, or ""
	Builder  gobuild.Builder
}

// Options returns the options of a run of a scenario.
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
		n.choose.outward = true // the clients are not in a network of the run
	}
	if o.Provider, o.ProviderReason, err = n.choose.pick(ctx, s, n.Catalog); err != nil {
		return o, err
	}
	o.Program = standIn(o.Provider.Name(), n.images, n.other)
	o.Built, err = n.buildClients(ctx, s)
	return o, err
}

// standIn names the image or the program that runs the clients in place of this one, or "".
func standIn(provider string, images map[string]string, other string) string {
	if provider == inproc {
		return ""
	}
	if image := images[node.SelfProgram]; image != "" {
		return "image " + image
	}
	return other
}

// Replay returns the command that repeats a run, without its seed.
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
