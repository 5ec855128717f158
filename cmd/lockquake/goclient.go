package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/gobuild"
	"github.com/lockquake/lockquake/scenarios"
)

// clientFromWords reads the words that name a program in the place of lockquake's own client: a command, or the folder of a Go program with the versions of
// modules that it is built with, and -tags=A,B. Relative names in it begin in the current folder.
func clientFromWords(words []string) (c scenarios.Client, err error) {
	if len(words) == 0 {
		return c, usagef("--client: it names no program")
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
			return c, usagef("%s is a folder, so that a Go client is built there, and %q is neither MODULE@VERSION, MODULE=OTHER@VERSION, MODULE=./FOLDER nor -tags=TAG", c.Go, word)
		}
		c.With = append(c.With, word)
	}
	return c, nil
}

// buildClient builds the program that a scenario names for its clients, where that is one of Go sources. It returns its path, else "".
func (n *nodeSource) buildClient(ctx context.Context, s scenarios.Scenario) (string, error) {
	c := s.Workload.Client
	if c.IsOwn() {
		c = s.Backend.Client
	}
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
