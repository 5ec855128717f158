package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/goccy/go-yaml"
)

// Mutant is a wrong variant of one declaration.
type Mutant struct {
	Package string `yaml:"package"` // its folder, from the root of the module
	Func    string `yaml:"func"`    // the declaration; a method as (*T).name
	Old     string `yaml:"old"`     // its syntax occurs exactly once in it
	New     string `yaml:"new"`
	Why     string `yaml:"why"` // what is wrong with it
	// Tests lists the packages, beside the mutant's own, whose tests may notice it; from the root.
	Tests []string `yaml:"tests,omitempty"`
	// Run selects the tests that may notice it, as -run of go test takes it; "": all. A package whose tests take
	// minutes needs it.
	Run string `yaml:"run,omitempty"`
	// Equivalent is the reason why no test can notice it. Such a mutant is not tried, and counts as a survivor.
	Equivalent string `yaml:"equivalent,omitempty"`

	at place // of Old
}

// parse reads a list, and finds in the sources below root the code that its mutants replace.
func parse(root string, text []byte) ([]Mutant, error) {
	var all []Mutant
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("the list: %w", err)
	}
	for i := range all {
		if err := all[i].locate(root); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (m *Mutant) locate(root string) (err error) {
	switch {
	case m.Why == "" && m.Equivalent == "":
		return fmt.Errorf("%s: the mutant has no reason: %q", m.Func, m.Old)
	case slices.Equal(lexemes(m.Old), lexemes(m.New)):
		return fmt.Errorf("%s: %s: it changes nothing", m.Func, m.Why)
	}
	if m.at, err = m.find(root); err != nil {
		err = fmt.Errorf("%s: %w", m.Why, err)
	}
	return err
}

// String returns a name for the mutant.
func (m Mutant) String() string {
	if m.Func == "" {
		return m.at.file + ": " + m.Why
	}
	return m.at.file + ": " + m.Func + ": " + m.Why
}

// apply returns the mutated file. root is the module's.
func (m Mutant) apply(root string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.at.file)))
	if err != nil {
		return nil, err
	}
	if m.at.from == m.at.to {
		return nil, fmt.Errorf("%v: it changes nothing", m)
	}
	return slices.Concat(b[:m.at.from], []byte(m.New), b[m.at.to:]), nil
}

// packages returns the packages whose tests are run.
func (m Mutant) packages() []string {
	out := []string{"./" + m.Package}
	switch m.Package {
	case "results", "results/quorum": // the checkers' histories test the judge
		out = append(out, "./results/checkers")
	case "results/checkers", "history": // the second judge comes last since it takes longest
		out = append(out, "./internal/oracle")
	case "results/checkers/harm", "results/checkers/costs": // they have no tests of their own
		out = []string{"./results/checkers"}
	case "results/checkers/evidence", "results/checkers/keptup", "results/checkers/served", "results/checkers/users":
		out = append(out, "./results/checkers")
	}
	for _, t := range m.Tests {
		out = append(out, "./"+t)
	}
	return out
}
