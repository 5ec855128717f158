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

// root is that of the module.
const root = "../.."

// TestTheListIsInStepWithTheCode: what a mutant replaces is found exactly once.
func TestTheListIsInStepWithTheCode(t *testing.T) {
	equivalent, err := parse(root, found)
	if err != nil {
		t.Fatal("found.yaml:", err)
	}
	for _, m := range equivalent {
		if m.Equivalent == "" {
			t.Errorf("found.yaml: %v: %q: why is it equivalent?", m, m.New)
		}
	}
	all, err := parse(root, list)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 150 || len(all) > 400 {
		t.Errorf("%d mutants, want 150 to 400: the list is for rules, and gremlins finds the rest", len(all))
	}
	seen := map[string]bool{}
	for _, m := range all {
		key, err := m.becomes(root)
		if err != nil {
			t.Error(err)
		}
		if seen[key] {
			t.Errorf("%v: it is listed twice", m)
		}
		seen[key] = true
		for _, p := range m.packages() {
			if found, _ := filepath.Glob(filepath.Join(root, p, "*_test.go")); len(found) == 0 {
				t.Errorf("%v: %s has no tests", m, p)
			}
		}
	}
	for _, k := range checkers.All() {
		judges := slices.ContainsFunc(k.Counts, func(q results.Quantity) bool { return q.Tone == results.Violation })
		file := "/" + k.Name + ".go"
		if judges && !slices.ContainsFunc(all, func(m Mutant) bool { return strings.HasSuffix(m.at.file, file) }) {
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
		m := Mutant{Package: ".", Func: "less", Old: "a < b", New: c.new, Why: "a test", Run: c.run}
		if err := m.locate(dir); err != nil {
			t.Fatal(err)
		}
		got := b.try(t.Context(), m)
		if got.Outcome != c.want {
			t.Errorf("%s by %s: %+v, want %s", c.new, c.run, got, c.want)
		}
	}
	if got := b.try(t.Context(), Mutant{Package: ".", Func: "less", Old: "nothing", New: "x", Why: "a test"}); got.Outcome != Broken {
		t.Errorf("what is not there was replaced: %+v", got)
	}
}

// TestAMutantIsFoundByItsSyntax: layout, comments and the file do not matter, and half a node is none.
func TestAMutantIsFoundByItsSyntax(t *testing.T) {
	const declared = `package toy

const most = 1 << 4

type list[T any] struct{ n int }

func (l *list[T]) add(a, b int) bool {
	if a < b && b <= most { // a comment
		l.n++
		return same(
			a,
			b,
		)
	}
	l.n, a = a, l.n
	return a == b || same(a, a)
}

func (l list[T]) size() int { return l.n }
`
	branch := declared[strings.Index(declared, "if a") : strings.Index(declared, "}\n\tl.n")+1]
	dir := t.TempDir()
	const another = "package toy\n\nfunc same(a, b int) bool { return a == b }\n"
	for name, text := range map[string]string{"another.go": another, "toy.go": declared} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ of, old, stands string }{
		{"(*list).add", "a<b", "a < b"},
		{"(*list).add", "if a < b && b <= most { l.n++; return same(a, b) }", branch},
		{"(*list).add", "l.n++\nreturn same(a,\n  b)", "l.n++\n\t\treturn same(\n\t\t\ta,\n\t\t\tb,\n\t\t)"},
		{"(*list).add", "a == b", "a == b"},
		{"same", "a == b", "a == b"},
		{"most", "1 << 4", "1 << 4"},
		{"list.size", "l.n", "l.n"},
		{"(*list).add", "a", ""}, // several
		{"(*list).add", "l.n, a", "l.n, a"},
		{"(*list).add", "< b && b", ""},         // half of two nodes
		{"(*list).add", "same(a, a", ""},        // a bracket is missing
		{"(*list).add", "a < b /* */ && c", ""}, // not there
		{"(*list).size", "l.n", ""},             // no such declaration
		{"add", "a < b", ""},
	} {
		at, err := Mutant{Package: ".", Func: c.of, Old: c.old}.find(dir)
		if (err != nil) != (c.stands == "") {
			t.Errorf("%q in %s: %v", c.old, c.of, err)
		} else if c.of != "same" && err == nil && declared[at.from:at.to] != c.stands {
			t.Errorf("%q in %s is found at %q", c.old, c.of, declared[at.from:at.to])
		}
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
