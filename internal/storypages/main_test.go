package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const again = "; run it and `go run ./internal/storypages RUN-DIR` (docs/development.md, \"Add a story\")"

// TestPagesShowTheStories holds the pages to the stories: each has a section with its claim and a picture, what is shown of it and
// its twins are runs of their own that passed, of a commit, and with all that is expected; and nothing in the written parts is by hand.
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
		for _, one := range s.forms() {
			f, ok := s.Found[one.Name]
			switch {
			case !ok:
				t.Errorf("%s has no run to show%s", one.Name, again)
				continue
			case f.Verdict != "pass":
				t.Errorf("%s: the run that is shown is %s%s", one.Name, f.Verdict, again)
			case strings.Contains(f.Replay, "--set") || !ofCommit(f.Made):
				t.Errorf("%s: the run that is shown is another's: %s, made by %s%s", one.Name, f.Replay, f.Made, again)
			}
			for _, e := range one.Expect {
				_, counted := f.Counts[e.Name]
				_, measured := f.Measures[e.Name]
				if !counted && !measured && !e.Free() && e.Name != "judged" {
					t.Errorf("%s: the run that is shown does not tell %s, which is expected now%s", one.Name, e.Name, again)
				}
			}
		}
		svg, err := os.ReadFile(filepath.Join(statesDir, s.Name+".svg"))
		if err != nil || len(svg) > largest || !s.Found[s.Name].drawn() {
			t.Errorf("%s: a picture of %d bytes, at most %d: %v%s", s.Name, len(svg), largest, err, again)
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
	if readmeText(all) == "" {
		t.Errorf("the README has no picture of %s%s", onReadme, again)
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
