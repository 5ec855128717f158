package clientcheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
)

// TestGoClientNumbersKinds: clients/go is a module of its own and writes kinds of events by their numbers.
func TestGoClientNumbersKinds(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../clients/go/stream.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != len(spec.Values) {
			return true
		}
		for i, name := range spec.Names {
			if lit, ok := spec.Values[i].(*ast.BasicLit); ok && strings.HasPrefix(name.Name, "kind") {
				numbers[name.Name], _ = strconv.Atoi(lit.Value)
			}
		}
		return true
	})
	if len(numbers) < 10 {
		t.Fatalf("the kinds were not found: %v", numbers)
	}
	for name, n := range numbers {
		want := strings.ToLower(strings.TrimPrefix(name, "kind"))
		if got := strings.ReplaceAll(history.Kind(n).String(), "-", ""); got != want {
			t.Errorf("%s is %d, which is %s", name, n, got)
		}
	}
}
