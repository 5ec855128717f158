package chaos

import (
	"os"
	"strings"
	"testing"
)

// The page for people names every fault.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kinds() {
		if !strings.Contains(string(data), "\n| `"+k.Name+"` |") {
			t.Errorf("docs/faults.md has no line for %s", k.Name)
		}
	}
}
