package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const again = "; run it and `go run ./internal/storypages RUN-DIR` (docs/development.md, \"The pages of the stories\")"

// TestPagesShowTheStories holds the pages to the stories: each has a section with its claim and a run, what is shown are runs that passed, with a
// picture each; and nothing in the written parts is by hand.
func TestPagesShowTheStories(t *testing.T) {
	if err := os.Chdir("../.."); err != nil {
		t.Fatal(err)
	}
	all, err := stories(statesDir)
	if err != nil {
		t.Fatal(err)
	}
	text := storiesText(all)
	for _, s := range all {
		if !strings.Contains(text, "\n### "+s.Name+"\n\n"+oneLine(s.Claim)) {
			t.Errorf("%s has no section with its claim in %s", s.Name, storiesPage)
		}
		if _, ok := s.Found[s.Name]; !ok {
			t.Errorf("%s has no run to show%s", s.Name, again)
		}
		for name, f := range s.Found {
			if f.Verdict != "pass" {
				t.Errorf("%s: the run that is shown is %s%s", name, f.Verdict, again)
			}
		}
		if f, ok := s.Found[s.Name]; ok && f.drawn() {
			svg, err := os.ReadFile(filepath.Join(statesDir, s.Name+".svg"))
			if err != nil || len(svg) > largest {
				t.Errorf("%s: a picture of %d bytes, at most %d: %v%s", s.Name, len(svg), largest, err, again)
			}
		}
	}
	for page, part := range map[string]func([]*story) string{storiesPage: storiesText, readmePage: readmeText} {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want, err := put(string(b), "stories", part(all))
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		if d := cmp.Diff(want, string(b)); d != "" {
			t.Errorf("%s is not what make story-pages writes:\n%s", page, d)
		}
	}
	if n := strings.Count(readmeText(all), "!["); n < 1 || n > 5 {
		t.Errorf("the README has %d pictures, want at most one of each family", n)
	}
}

func TestPut(t *testing.T) {
	begin, end := fmt.Sprintf(beginMark, "stories"), fmt.Sprintf(endMark, "stories")
	got, err := put("a\n"+begin+"\nold\n"+end+"\nb\n", "stories", "new\n")
	if err != nil || got != "a\n"+begin+"\nnew\n"+end+"\nb\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, page := range []string{"", begin + "\n", end} {
		if _, err := put(page, "stories", "new\n"); err == nil {
			t.Errorf("%q has the part", page)
		}
	}
}
