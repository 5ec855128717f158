// Storypages writes the pages about the stories. docs/stories.md lists them by question. docs/stories/NAME.md has a
// story's claim, a run's findings, its picture, its words and its twins. The README has one picture. Its arguments
// are run directories, or folders of runs, from which it keeps the latest run of each story and twin. Without
// arguments it rewrites the pages from the kept runs.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
)

// The files that are written, from the top of the tree.
const (
	runsDir     = "internal/storypages/testdata"
	pagesDir    = "docs/stories"
	storiesPage = "docs/stories.md"
	readmePage  = "README.md"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "storypages:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	all, err := stories()
	if err != nil {
		return err
	}
	for _, arg := range args {
		dirs, err := runsIn(arg, all)
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
		for _, dir := range dirs {
			if err := take(dir, all); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
		}
	}
	if err := judgeAll(all); err != nil {
		return err
	}
	if err := os.MkdirAll(pagesDir, 0o755); err != nil {
		return err
	}
	for _, s := range all {
		for name, content := range s.files() {
			if err := os.WriteFile(filepath.Join(pagesDir, name), content, 0o644); err != nil {
				return err
			}
		}
	}
	for page, part := range map[string]func([]*story) string{storiesPage: storiesText, readmePage: readmeText} {
		if err := rewrite(page, part(all)); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return nil
}

// runsIn returns arg itself if it is a run directory. For a folder, it returns the latest run of each story and twin
// that can be shown.
func runsIn(arg string, all []*story) ([]string, error) {
	if _, err := os.Stat(filepath.Join(arg, results.FileEnv)); err == nil {
		return []string{arg}, shows(arg)
	}
	var out []string
	for _, s := range all {
		for _, form := range s.forms() {
			dirs, err := filepath.Glob(filepath.Join(arg, form.Name, "[0-9]*"))
			if err != nil {
				return nil, err
			}
			slices.Sort(dirs)
			for _, dir := range slices.Backward(dirs) {
				if shows(dir) == nil {
					out = append(out, dir)
					break
				}
			}
		}
	}
	return out, nil
}

// shows returns why a run cannot be shown for its story; nil if it can.
func shows(dir string) error {
	env, err := results.ReadEnv(dir)
	switch {
	case err != nil:
		return err
	case env.Interrupted || !env.Finished:
		return errors.New("the run was cut short; show a complete one")
	case strings.Contains(env.Replay, "--set"):
		return fmt.Errorf("the run is of another scenario (%s); show one of the story's own", env.Replay)
	case !ofCommit(env.Version):
		return fmt.Errorf("the run was made by %s, an uncommitted build; show one of a commit",
			env.Version)
	}
	if r, err := results.ReadReport(dir); err != nil || r.Verdict != results.Pass {
		return errors.Join(err, fmt.Errorf("the run is %q; show one that passed", r.Verdict))
	}
	return nil
}

// madeOf matches a version with its commit, "0.1.0 (abc1234)", or a commit alone, as programs before 0.1.0 print.
var madeOf = regexp.MustCompile(`^(\d+\.\d+\.\d+ \([0-9a-f]{7,40}\)|[0-9a-f]{7,40})$`)

// ofCommit reports whether a version of lockquake is one that others can build.
func ofCommit(version string) bool { return madeOf.MatchString(version) }

// take puts a run into the archive of its story.
func take(dir string, all []*story) error {
	r, err := results.ReadReport(dir)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s *story) bool { return slices.Contains(s.names(), r.Scenario) })
	if i < 0 {
		return fmt.Errorf("%q is not a story", r.Scenario)
	}
	return keep(archive(all[i].Name), dir, r.Scenario, all[i].names())
}

// rewrite replaces the generated part of a page.
func rewrite(page, text string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	out, err := put(string(b), "stories", text)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(out), 0o644)
}
