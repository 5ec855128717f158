package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Mutant is a wrong variant of one file.
type Mutant struct {
	File string `yaml:"file"` // from the root of the module
	Old  string `yaml:"old"`  // found exactly once in it
	New  string `yaml:"new"`
	Why  string `yaml:"why"` // what is wrong with it
	// Tests are the packages whose tests may notice, beside the file's own; from the root.
	Tests []string `yaml:"tests,omitempty"`
	// Run names the tests that may notice, as -run of go test takes it; "": all. A package whose tests take minutes needs it.
	Run string `yaml:"run,omitempty"`
	// Equivalent is why no test can notice: such a mutant is not tried, and counts as one that survived.
	Equivalent string `yaml:"equivalent,omitempty"`

	at int // where Old stands, in bytes; 0: it is looked for
}

func parse(text []byte) ([]Mutant, error) {
	var all []Mutant
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("the list: %w", err)
	}
	for i := range all {
		all[i].Old, all[i].New = tabbed(all[i].Old), tabbed(all[i].New)
	}
	return all, nil
}

var indent = regexp.MustCompile(`(?m)^(?:  )+`)

// tabbed is code with tabs where the list has pairs of spaces, for YAML takes no tabs there.
func tabbed(code string) string {
	return indent.ReplaceAllStringFunc(code, func(s string) string { return strings.Repeat("\t", len(s)/2) })
}

// apply returns the mutated file. root is that of the module.
func (m Mutant) apply(root string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, err
	}
	if m.at > 0 && m.Old != "" && strings.HasPrefix(string(b[m.at:]), m.Old) {
		return slices.Concat(b[:m.at], []byte(m.New), b[m.at+len(m.Old):]), nil
	}
	switch n := strings.Count(string(b), m.Old); {
	case m.Why == "" && m.Equivalent == "":
		return nil, fmt.Errorf("%s: a mutant does not say what is wrong with it: %q", m.File, m.Old)
	case m.Old == "" || m.Old == m.New:
		return nil, fmt.Errorf("%s: %s: it changes nothing", m.File, m.Why)
	case n != 1:
		return nil, fmt.Errorf("%s: %s: what it replaces is found %d times: %q", m.File, m.Why, n, m.Old)
	}
	return []byte(strings.Replace(string(b), m.Old, m.New, 1)), nil
}

// packages are those whose tests are run.
func (m Mutant) packages() []string {
	dir := path.Dir(m.File)
	out := []string{"./" + dir}
	switch dir {
	case "results", "results/quorum": // the judge is tried with the histories of the checkers
		out = append(out, "./results/checkers")
	case "results/checkers", "history": // the second judge comes last, for it takes longest
		out = append(out, "./internal/oracle")
	case "results/checkers/harm":
		out = []string{"./results/checkers"}
	}
	for _, t := range m.Tests {
		out = append(out, "./"+t)
	}
	return out
}
