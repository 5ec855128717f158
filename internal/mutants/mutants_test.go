package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
)

// TestTheListIsInStepWithTheCode: what a mutant replaces is found exactly once.
func TestTheListIsInStepWithTheCode(t *testing.T) {
	all, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	equivalent, err := parse(found)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range equivalent {
		if _, err := m.apply("../.."); err != nil || m.Equivalent == "" {
			t.Errorf("found.yaml: %s: %q: why is it equivalent? %v", m.File, m.New, err)
		}
	}
	if len(all) < 150 {
		t.Errorf("%d mutants, want 150 or more", len(all))
	}
	seen := map[string]bool{}
	for _, m := range all {
		if _, err := m.apply("../.."); err != nil {
			t.Error(err)
		}
		if key := m.File + "\x00" + m.Old + "\x00" + m.New; seen[key] {
			t.Errorf("%s: %s: it is listed twice", m.File, m.Why)
		} else {
			seen[key] = true
		}
		for _, p := range m.packages() {
			if found, _ := filepath.Glob(filepath.Join("../..", p, "*_test.go")); len(found) == 0 {
				t.Errorf("%s: %s: %s has no tests", m.File, m.Why, p)
			}
		}
	}
	for _, k := range checkers.All() {
		judges := slices.ContainsFunc(k.Counts, func(q results.Quantity) bool { return q.Tone == results.Violation })
		if file := "/" + k.Name + ".go"; judges && !slices.ContainsFunc(all, func(m Mutant) bool { return strings.HasSuffix(m.File, file) }) {
			t.Errorf("checker %s counts violations and has no mutants", k.Name)
		}
	}
}

// TestAMutantIsKilledOrSurvives tries two of a package that is made for it.
func TestAMutantIsKilledOrSurvives(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module toy\n\ngo 1.26\n",
		"toy.go":      "package toy\n\nfunc less(a, b int) bool { return a < b }\n",
		"toy_test.go": "package toy\n\nimport \"testing\"\n\nfunc TestLess(t *testing.T) {\n\tif !less(1, 2) || less(2, 1) {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestWrong(t *testing.T) { t.Fatal() }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := newBench(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	for _, c := range []struct{ new, run, want string }{
		{"a > b", "TestLess", Killed}, {"a <= b", "TestLess", Survived}, {"a <", "TestLess", Broken}, {"a > b", "TestWrong", Broken},
	} {
		got := b.try(t.Context(), Mutant{File: "toy.go", Old: "a < b", New: c.new, Why: "a test", Run: c.run})
		if got.Outcome != c.want {
			t.Errorf("%s by %s: %+v, want %s", c.new, c.run, got, c.want)
		}
	}
	if got := b.try(t.Context(), Mutant{File: "toy.go", Old: "nothing", New: "x", Why: "a test"}); got.Outcome != Broken {
		t.Errorf("what is not there was replaced: %+v", got)
	}
}

// TestWhatGremlinsFindsIsReplacedInItsPlace: the same operator stands there twice.
func TestWhatGremlinsFindsIsReplacedInItsPlace(t *testing.T) {
	dir, text := t.TempDir(), "package toy\n\n// ü\nfunc between(a, b, c int) bool { return a < b && b <= c }\n"
	if err := os.WriteFile(filepath.Join(dir, "toy.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	line := strings.Split(text, "\n")[3]
	for _, c := range []struct{ kind, old, new string }{
		{"CONDITIONALS_BOUNDARY", "b <= c", "b < c"}, {"CONDITIONALS_NEGATION", "b <= c", "b > c"}, {"CONDITIONALS_BOUNDARY", "a < b", "a <= b"},
	} {
		m := mutation{Type: c.kind, Line: 4, Column: strings.Index(line, c.old) + 3}.mutant("toy.go", text)
		got, err := m.apply(dir)
		if want := strings.Replace(text, c.old, c.new, 1); err != nil || string(got) != want {
			t.Errorf("%s of %s: %q, %v", c.kind, c.old, got, err)
		}
	}
	if _, err := (mutation{Type: "ANOTHER", Line: 4, Column: 3}).mutant("toy.go", text).apply(dir); err == nil {
		t.Error("what nobody knows was replaced")
	}
}
