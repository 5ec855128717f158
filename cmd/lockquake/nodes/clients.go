package nodes

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/gobuild"
	"github.com/lockquake/lockquake/scenarios"
)

// ClientFromWords parses the words that name a client program to replace the built-in one. They are a command, or the
// directory of a Go program with the module versions to build it with, and -tags=A,B. Relative names start in the
// current directory.
func ClientFromWords(words []string) (c scenarios.Client, err error) {
	if len(words) == 0 {
		return c, cli.Usagef("--client: no program is given")
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
			return c, cli.Usagef("%s is a folder, so a Go client is built there, but %q is neither MODULE@VERSION, MODULE=OTHER@VERSION, MODULE=./FOLDER nor -tags=TAG", c.Go, word)
		}
		c.With = append(c.With, word)
	}
	return c, nil
}

// buildClients builds the Go programs that a scenario names as clients. It returns their paths, with "" for programs
// that are not built from Go sources.
func (n *Source) buildClients(ctx context.Context, s scenarios.Scenario) ([]string, error) {
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

func (n *Source) buildClient(ctx context.Context, s scenarios.Scenario, c scenarios.Client) (string, error) {
	if c.Go == "" {
		return "", nil
	}
	dir, err := plan.ClientFolder(s, c)
	if err != nil {
		return "", err
	}
	if n.Builder.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		n.Builder.Cache = filepath.Join(cache, "lockquake", "clients")
	}
	source := gobuild.Source{Dir: c.Go, Tags: c.Tags}
	if !filepath.IsAbs(source.Dir) {
		source.Dir = filepath.Join(dir, source.Dir)
	}
	for _, text := range c.With {
		p, _ := scenarios.ReadPin(text) // it was validated when the scenario was read
		if p.Version == "" && !filepath.IsAbs(p.Replacement) {
			p.Replacement = filepath.Join(dir, p.Replacement)
		}
		source.With = append(source.With, gobuild.Module{
			Path: p.Module, Replacement: p.Replacement,
			Version: p.Version,
		})
	}
	path, err := n.Builder.Build(ctx, source)
	if err != nil {
		return "", engine.MissingError{Text: c.String() + ": " + err.Error()}
	}
	return path, nil
}
