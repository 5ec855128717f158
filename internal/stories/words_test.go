package stories

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDocumentation: the page for people names every key, trait and value that a story can have.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/internals/adding.md")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(header, slices.Collect(maps.Keys(times)))
	for _, x := range traits {
		all = append(all, x.word)
	}
	for _, word := range all {
		if !strings.Contains(string(page), "`"+word+"`") && !strings.Contains(string(page), "`"+word+": ") {
			t.Errorf("docs/internals/adding.md does not mention %q", word)
		}
	}
}
