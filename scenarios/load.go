package scenarios

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/agnivade/levenshtein"

	"github.com/lockquake/lockquake/history"
)

//go:embed stories/*.yaml healthy/*.yaml controls/*.yaml random/*.yaml rates/*.yaml
var embedded embed.FS

// Listing describes one embedded scenario for lists.
type Listing struct {
	Name    string // the argument of Load: the story's name, for a twin followed by the twin's word
	Backend string
	File    string // embedded file, such as "stories/etcd-holder-pause.yaml"
	Claim   string // what the run shows
	Path    string // folder and name, such as "stories/etcd-holder-pause-fenced": patterns with a slash match it
}

// catalog returns all embedded scenarios, each followed by its twins, sorted by file.
var catalog = sync.OnceValues(func() ([]Scenario, error) {
	return families(func(string) bool { return true })
})

// families reads the embedded files whose names are wanted. A file is named like its scenario.
func families(wanted func(name string) bool) ([]Scenario, error) {
	files, err := fs.Glob(embedded, "*/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list embedded scenarios: %w", err)
	}
	slices.Sort(files)
	var out []Scenario
	for _, file := range files {
		if !wanted(strings.TrimSuffix(path.Base(file), ".yaml")) {
			continue
		}
		data, err := embedded.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read embedded scenario: %w", err)
		}
		family, err := parseFamily(data, file)
		if err != nil {
			return nil, err
		}
		out = append(out, family...)
	}
	return out, nil
}

// Names lists the embedded scenarios, twins included.
func Names() []Listing {
	all, err := catalog()
	if err != nil { // a test of this package parses them all
		panic(err)
	}
	out := make([]Listing, 0, len(all))
	for _, s := range all {
		out = append(out, listing(s))
	}
	return out
}

func listing(s Scenario) Listing {
	return Listing{Name: s.Name, Backend: s.Backend.Use, File: s.File, Claim: s.Claim, Path: path.Dir(s.File) + "/" +
		s.Name}
}

// Matches reports whether a pattern such as "etcd-*" or "stories/*" names the scenario.
func (l Listing) Matches(pattern string) bool {
	against := l.Name
	if strings.Contains(pattern, "/") {
		against = l.Path
	}
	ok, err := path.Match(pattern, against)
	return ok && err == nil
}

// Load returns the scenarios that a word names. An embedded scenario or twin has a name; a pattern such as "etcd-*"
// or "stories/*" names several. A YAML file is named by its path, a twin in it by "path:word".
func Load(nameOrPath string) ([]Scenario, error) {
	pattern := strings.ContainsAny(nameOrPath, "*?[")
	read := catalog
	// Reading all of them would take longer than all other work before a run. A twin's name begins with its file's.
	if !pattern {
		read = func() ([]Scenario, error) {
			return families(func(name string) bool { return strings.HasPrefix(path.Base(nameOrPath), name) })
		}
	}
	some, err := read()
	if err != nil {
		return nil, err
	}
	var out []Scenario
	for _, s := range some {
		if l := listing(s); l.Name == nameOrPath || l.Path == nameOrPath || pattern && l.Matches(nameOrPath) {
			out = append(out, s)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if s, err := loadFile(nameOrPath); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	all, err := catalog()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	word := strings.Trim(nameOrPath, "*?[]")
	near := nearest(names, 5, func(name string) int {
		if strings.Contains(name, word) {
			return 0
		}
		return levenshtein.ComputeDistance(word, name[:min(len(word), len(name))])
	})
	hint := "did you mean " + listed(near) + "? `lockquake list scenarios` lists all"
	switch {
	case pattern:
		hint = "no embedded scenario matches; " + hint
	case isPath(nameOrPath):
		hint = "no such file"
	}
	return nil, &Error{File: nameOrPath, Message: "unknown scenario: " + hint}
}

func isPath(s string) bool {
	return strings.ContainsAny(s, `/\`) || strings.HasSuffix(s, ".yaml") || strings.HasSuffix(s, ".yml")
}

// loadFile reads the scenario in a file, or the twin that "path:word" names.
func loadFile(name string) ([]Scenario, error) {
	data, err := history.ReadFile(name, history.MostText)
	file, word := name, ""
	if errors.Is(err, fs.ErrNotExist) {
		if i := strings.LastIndexByte(name, ':'); i > 0 {
			file, word = name[:i], name[i+1:]
			data, err = history.ReadFile(file, history.MostText)
		}
	}
	switch {
	case errors.Is(err, syscall.EISDIR):
		return nil, &Error{File: name, Message: "is a directory; name the YAML file of a scenario"}
	case errors.Is(err, history.ErrCorrupt):
		return nil, &Error{File: name, Message: fmt.Sprintf("is not a regular file of at most %d MiB; name the YAML file of a scenario", history.MostText>>20)}
	case err != nil:
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	family, err := parseFamily(data, file)
	if err != nil {
		return nil, err
	}
	if word == "" {
		return family[:1], nil
	}
	var words []string
	for _, s := range family[1:] {
		w := strings.TrimPrefix(s.Name, family[0].Name+"-")
		if w == word {
			return []Scenario{s}, nil
		}
		words = append(words, w)
	}
	return nil, &Error{File: file, Message: fmt.Sprintf("has no twin %q; it has %s", word, listed(words))}
}
