package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
)

// TestEveryCauseHasACode: a cause without a code in the history would be dropped, and the reason lost.
func TestEveryCauseHasACode(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../lock/reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	causes := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Cause" {
				name, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				causes[name] = true
			}
		}
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		if e, ok := Because(&history.Event{}, lock.Reason{Cause: lock.Cause(name)}); !ok || history.CodeName(e.Code) != name {
			t.Errorf("the history has no code for %s", name)
		}
	}
	var codes int
	for c := range uint8(255) {
		if _, ok := history.CauseOf(history.CodeName(c)); !ok {
			continue // an error class, or a cause without a code
		}
		codes++
		if !causes[history.CodeName(c)] {
			t.Errorf("package lock has no cause %s", history.CodeName(c))
		}
	}
	if len(causes) < 16 || codes < 16 {
		t.Errorf("%d causes, %d codes", len(causes), codes)
	}
}
