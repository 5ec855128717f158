package nodes

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster/executable"
	"github.com/lockquake/lockquake/scenarios"
)

// parseImages parses the --image flags.
func parseImages(flags []string) (map[string]string, error) {
	images := map[string]string{}
	for _, f := range flags {
		key, image, ok := strings.Cut(f, "=")
		if !ok || key == "" || image == "" {
			return nil, cli.Usagef("--image %s: not of the form KEY=IMAGE, such as redis=redis:7.4", f)
		}
		images[key] = image
	}
	return images, nil
}

// Flags select the nodes of a verb's runs and where they run.
type Flags struct {
	Provider string
	Images   []string
	Clients  []string
	Attach   attachFlags
}

// Add adds the flags to a verb.
func (f *Flags) Add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.Provider, "provider", "auto",
		"how nodes run: docker (containers), local (processes), swarm (containers on the hosts of a Docker Swarm), or auto: docker if an engine answers")
	fl.StringArrayVar(&f.Images, "image", nil,
		"image of a kind of node instead of the project's own, such as redis=redis:7.4; may be repeated")
	fl.StringArrayVar(&f.Clients, "client", nil,
		"program instead of lockquake's own client, such as 'python3 my_lock.py', or 'FOLDER MODULE@VERSION', which is built: workload.client of the scenario (docs/clients.md); may be repeated: the clients take turns")
	f.Attach.add(fl)
	// The flag was added above: this cannot fail.
	_ = c.RegisterFlagCompletionFunc("provider", cobra.FixedCompletions(Providers, cobra.ShellCompDirectiveNoFileComp))
}

// Read resolves the flags. A program that replaces this one on the nodes comes from the environment.
func (f *Flags) Read() (*Source, error) {
	s := &Source{Flags: f, Catalog: Catalog(), other: executable.Other()}
	var err error
	if s.images, err = parseImages(f.Images); err != nil {
		return nil, err
	}
	if s.client, err = f.clientKey(); err != nil {
		return nil, err
	}
	if s.Attached, err = f.Attach.read(); err != nil {
		return nil, err
	}
	s.choose = chooser{name: f.Provider, outward: s.Attached != nil}
	return s, nil
}

// clientKey returns the scenario key that --client stands for.
func (f *Flags) clientKey() (string, error) {
	c, err := f.Program()
	if c == nil || err != nil {
		return "", err
	}
	return c.Set()
}

// Program returns the client that --client names, or nil without it.
func (f *Flags) Program() (*scenarios.Client, error) {
	var c *scenarios.Client
	for _, text := range f.Clients {
		p, err := ClientFromWords(strings.Fields(text))
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
