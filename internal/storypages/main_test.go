package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

const again = "; run it and `go run ./internal/storypages RUN-DIR` (docs/internals/adding.md, \"Add a story\")"

// Size limits of the kept runs and of the pages, in bytes.
const (
	mostKept  = 9 << 20 // of all runs
	mostIndex = 25_000  // of docs/stories.md
	mostDrawn = 40_000  // of one picture
)

// TestPagesShowTheStories compares the pages with the stories and the code. Each story and twin must show a run that
// passed, at a commit, with everything that the story expects. Its words and picture must be what today's code makes
// of that run, and leave out no demand.
func TestPagesShowTheStories(t *testing.T) {
	if err := os.Chdir("../.."); err != nil {
		t.Fatal(err)
	}
	all, err := stories()
	if err != nil {
		t.Fatal(err)
	}
	if err := judgeAll(all); err != nil {
		t.Fatal(err)
	}
	kept := int64(0)
	for _, s := range all {
		for _, one := range s.forms() {
			s.Found[one.Name].hold(t, one)
		}
		for name, want := range s.files() {
			got, err := os.ReadFile(filepath.Join(pagesDir, name))
			if err != nil || string(got) != string(want) {
				t.Errorf("%s is not what make story-pages writes: %v\n%s", name, err, cmp.Diff(string(want), string(got)))
			}
		}
		if n := len(s.Found[s.Name].Picture); n == 0 || n > mostDrawn {
			t.Errorf("%s: a picture of %d bytes, at most %d%s", s.Name, n, mostDrawn, again)
		}
		if info, err := os.Stat(archive(s.Name)); err == nil {
			kept += info.Size()
		}
	}
	if kept > mostKept {
		t.Errorf("the kept runs have %d bytes, at most %d", kept, mostKept)
	}
	text := storiesText(all)
	for _, s := range all {
		if !strings.Contains(text, "(stories/"+s.Name+".md)") {
			t.Errorf("%s answers no question in %s: add it to families.go", s.Name, storiesPage)
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
		if page == storiesPage && len(b) > mostIndex {
			t.Errorf("%s has %d bytes, at most %d", page, len(b), mostIndex)
		}
	}
	if readmeText(all) == "" {
		t.Errorf("the README has no picture of %s%s", onReadme, again)
	}
}

// hold checks a kept run against its scenario.
func (f found) hold(t *testing.T, one scenarios.Scenario) {
	t.Helper()
	switch {
	case f.Verdict == "":
		t.Errorf("%s has no run to show%s", one.Name, again)
		return
	case f.Verdict != "pass":
		t.Errorf("%s: the run that is shown is %s: %s%s", one.Name, f.Verdict, strings.Join(f.Reasons, "; "), again)
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
	for _, what := range f.Untold {
		t.Errorf("%s: %s:\n%s", one.Name, what, strings.Join(f.Words, "\n"))
	}
}

// TestARunIsKeptAndReadAgain: a later run of the same form replaces the earlier one, and one of a form that no longer
// exists is dropped.
func TestARunIsKeptAndReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.zip")
	for _, c := range []struct {
		scenario, text string
		forms          []string
	}{{"a", "1", []string{"a", "a-b"}}, {"a-b", "2", []string{"a", "a-b"}}, {"a-old", "3", []string{"a", "a-b", "a-old"}}, {"a", "4", []string{"a", "a-b"}}} {
		dir := t.TempDir()
		for name, text := range map[string]string{results.FileEnv: c.text, results.DirHistory + "/client-1.lqh": strings.Repeat(c.text, 500) + "end", results.FileReport: "not kept"} {
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := keep(file, dir, c.scenario, c.forms); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	if err := eachKept(file, func(dir, scenario string) error {
		a, err := os.ReadFile(filepath.Join(dir, results.FileEnv))
		b, err2 := os.ReadFile(filepath.Join(dir, results.DirHistory, "client-1.lqh"))
		if _, err := os.Stat(filepath.Join(dir, results.FileReport)); err == nil {
			t.Error("a report is kept")
		}
		got[scenario] = string(a) + string(b)
		return errors.Join(err, err2)
	}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"a": "4" + strings.Repeat("4", 500) + "end", "a-b": "2" + strings.Repeat("2", 500) + "end"}, got); d != "" {
		t.Error(d)
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

// TestPagesRepeatByTheInstalledProgram: the commands name the installed program, whatever the path of the one that
// made the run.
func TestPagesRepeatByTheInstalledProgram(t *testing.T) {
	t.Parallel()
	for made, want := range map[string]string{
		"build/lockquake run a --seed 1": "lockquake run a --seed 1", "lockquake run a": "lockquake run a", "": "",
	} {
		if got := published(made); got != want {
			t.Errorf("%q is published as %q, want %q", made, got, want)
		}
	}
}
