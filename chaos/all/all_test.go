package all

import (
	"os"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
)

// The page for people names every fault.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kinds() {
		if !strings.Contains(string(data), "\n| `"+k.Name+"` |") {
			t.Errorf("docs/faults.md has no line for %s", k.Name)
		}
	}
}

func TestEveryKindIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Kinds() {
		if k.Name == "" || k.Doc == "" || k.New == nil || seen[k.Name] {
			t.Errorf("%+v", k)
		}
		seen[k.Name] = true
	}
	if _, ok := chaos.Lookup(Kinds(), "earthquake"); ok {
		t.Error("a fault that does not exist was found")
	}
}
