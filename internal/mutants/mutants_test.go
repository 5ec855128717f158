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

// root is the root of the module.
const root = "../.."

// TestTheListIsInStepWithTheCode: the code that a mutant replaces occurs exactly once.
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

// toy writes a module with one package.
func toy(t *testing.T, code, test string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module toy\n\ngo 1.26\n", "toy.go": "package toy\n\n" + code, "toy_test.go": "package toy\n\nimport \"testing\"\n\n" + test,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestAMutantIsKilledOrSurvives tries some mutants of a package made for this test, alone and as variants.
func TestAMutantIsKilledOrSurvives(t *testing.T) {
	dir := toy(t, `type list[T any] []T

func (l list[T]) size(int, ...T) (n int) { return len(l) }

func less(a, b int) bool { return a < b }

var most = 1
`, `func TestLess(t *testing.T) {
	if !less(1, 2) || less(2, 1) || most != 1 {
		t.Fatal()
	}
}

func TestSize(t *testing.T) {
	if (list[int]{1, 2}).size(0, 1, 2) != 2 {
		t.Fatal()
	}
}

func TestWrong(t *testing.T) { t.Fatal() }
`)
	cases := []struct{ of, old, new, run, want string }{
		{"less", "a < b", "a > b", "TestLess", Killed},
		{"less", "a < b", "a <= b", "TestLess", Survived},
		{"less", "a < b", "a < c", "TestLess", Broken},
		{"less", "a < b", "a > b", "TestWrong", Broken},
		{"list.size", "len(l)", "0", "TestSize", Killed},
		{"list.size", "len(l)", "len(l) + 0", "TestSize", Survived},
		{"most", "1", "2", "TestLess", Killed},
	}
	var all []Mutant
	for _, c := range cases {
		m := Mutant{Package: ".", Func: c.of, Old: c.old, New: c.new, Why: "a test", Run: c.run}
		if err := m.locate(dir); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	for _, alone := range []bool{true, false} {
		b, err := newBench(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer b.close()
		if !alone {
			if b.variants, err = newVariants(t.Context(), b.root, b.dir, all); err != nil {
				t.Fatal(err)
			}
		}
		variants := 0
		for i, c := range cases {
			if got := b.try(t.Context(), all[i]); got.Outcome != c.want {
				t.Errorf("%s by %s, alone %t: %+v, want %s", c.new, c.run, alone, got, c.want)
			}
			if !alone && b.variants.number(all[i]) != 0 {
				variants++
			}
		}
		if !alone && variants != 5 { // one does not compile, and one is in no function
			t.Errorf("%d of %d are variants", variants, len(all))
		}
		if got := b.try(t.Context(), Mutant{Package: ".", Func: "less", Old: "nothing", New: "x", Why: "a test"}); got.Outcome != Broken {
			t.Errorf("what is not there was replaced: %+v", got)
		}
	}
}

// TestLikelyTestsComeFirst: likely tests are those that noticed the most mutants so far.
func TestLikelyTestsComeFirst(t *testing.T) {
	dir := toy(t, "func less(a, b int) bool { return a < b }\n", "func TestA(t *testing.T) { t.Run(\"x\", func(t *testing.T) { less(1, 2) }) }\n\n"+
		"func TestB(t *testing.T) {\n\tif !less(1, 2) {\n\t\tt.Fatal()\n\t}\n}\n")
	m := Mutant{Package: ".", Func: "less", Old: "a < b", New: "a > b", Why: "a test"}
	if err := m.locate(dir); err != nil {
		t.Fatal(err)
	}
	b, err := newBench(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if b.variants, err = newVariants(t.Context(), b.root, b.dir, []Mutant{m}); err != nil {
		t.Fatal(err)
	}
	over := trial{variant: b.variants.number(m)}
	if out, err := b.likely(t.Context(), over, "./.", ""); err != nil {
		t.Errorf("nothing is likely yet: %s", out)
	}
	for _, by := range []string{"TestA/x", "crashed"} {
		b.notice("./.", by)
	}
	if out, err := b.likely(t.Context(), over, "./.", ""); err != nil {
		t.Errorf("TestA notices nothing: %s", out)
	}
	b.notice("./.", "TestB")
	if _, err := b.likely(t.Context(), over, "./.", ""); err == nil {
		t.Error("TestB noticed one before, and was not tried first")
	}
	if got := b.try(t.Context(), m); got.Outcome != Killed || got.By != "./. TestB" {
		t.Errorf("%+v", got)
	}
}

// TestAMutantIsFoundByItsSyntax: layout, comments and the file do not matter; half a node does not match.
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

// TestGremlinsMutantIsReplacedInPlace: the same operator occurs there twice.
func TestGremlinsMutantIsReplacedInPlace(t *testing.T) {
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
