package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/cli"
)

// pages returns the documents for people, by path from the root of the tree.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/internals/*.md", "docs/stories/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 20 {
		t.Fatalf("only %d pages", len(all))
	}
	return all
}

// fences matches blocks that are not prose: commands, listings, output.
var fences = regexp.MustCompile("(?ms)^ *```.*?^ *```$")

// TestLinksInDocs: each link within the tree leads to an existing file, and to an existing heading if it names one.
func TestLinksInDocs(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings := map[string][]string{}
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, page), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, ":") {
				continue // a link to elsewhere
			}
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
				continue
			}
			if anchor == "" || filepath.Ext(file) != ".md" {
				continue
			}
			if headings[file] == nil {
				headings[file] = anchors(prose(t, file))
			}
			if !slices.Contains(headings[file], anchor) {
				t.Errorf("%s: the link %s names a heading that is not there", page, m[1])
			}
		}
	}
}

// prose returns a page without its fenced blocks.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return fences.ReplaceAllString(string(text), "")
}

// anchors returns the names by which GitHub links to the headings of a text.
func anchors(text string) []string {
	var all []string
	dropped := regexp.MustCompile(`[^\pL\pN_\- ]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// commands is a block of commands in a page, or one command in a sentence.
type commands struct {
	page, text string
	helpOnly   bool // its scenarios are not read: the page says why, or it is a placeholder such as `run FILE:WORD`
}

// notRun begins the line before a block that says why its commands are not tried.
const notRun = "<!-- not run: "

// commandsOf returns the commands in a page.
func commandsOf(t *testing.T, page string) []commands {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []commands
	block := regexp.MustCompile("(?ms)(^<!--[^\n]*-->\n)?^```sh\n(.*?)^```$")
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		all = append(all, commands{page, m[2], strings.HasPrefix(m[1], notRun)})
	}
	within := regexp.MustCompile("`((?:build/)?lockquake [a-z][^`\n]*(?:\n[^`\n]+)?)`")
	for _, m := range within.FindAllStringSubmatch(prose(t, page), -1) {
		all = append(all, commands{page, strings.ReplaceAll(m[1], "\n", " "), true})
	}
	return all
}

// TestCommandsInDocs passes the commands of each page to a shell that records the programs they call. Lockquake is
// then called the same way: with --dry-run if it would make runs, unchanged if it only prints, and otherwise with
// --help, which checks verb and flags. A block that cannot be tried here has a line before it that says why.
func TestCommandsInDocs(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, page := range pages(t) {
		if strings.Contains(page, "stories/") || strings.HasSuffix(page, "CHANGELOG.md") {
			continue
		}
		for _, c := range commandsOf(t, page) {
			seen++
			t.Run(filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				c.try(t)
			})
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands", seen)
	}
}

// others are the programs other than lockquake that the pages call.
var others = []string{
	"apt-get", "cat", "cp", "docker", "docker-compose", "git", "go", "javac", "jq", "make", "mkdir", "pip", "pytest",
}

// try runs the commands in a directory that has the files of the pages.
func (c commands) try(t *testing.T) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	note := "#!/bin/sh\nprintf '%s\\000' \"${0##*/}\" \"$@\" >>\"$CALLS\"\nprintf '\\n\\000' >>\"$CALLS\"\n"
	for _, name := range append([]string{"lockquake"}, others...) {
		lay(t, filepath.Join(bin, name), note)
	}
	lay(t, filepath.Join(dir, "build/lockquake"), note)
	lay(t, filepath.Join(dir, "lockquake/build/lockquake"), note)
	for _, name := range []string{"clients", "examples"} {
		root, err := filepath.Abs("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(root, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(c.text, ".yaml") {
		files(t, dir)
	}
	calls := filepath.Join(t.TempDir(), "calls")
	lay(t, calls, "")
	cmd := exec.Command("/bin/sh", "-e", "-c", c.text)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + bin, "CALLS=" + calls}
	if out, err := cmd.CombinedOutput(); err != nil && !c.helpOnly {
		t.Errorf("%s: %v: %s\n%s", c.page, err, out, c.text)
	}
	made, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	for call := range strings.SplitSeq(strings.TrimSuffix(string(made), "\n\x00"), "\n\x00") {
		if args := strings.Split(strings.TrimSuffix(call, "\x00"), "\x00"); args[0] == "lockquake" && len(args) > 1 {
			asked(t, dir, c.reading(args[1:]))
		}
	}
}

// files writes the scenarios and the suite that the pages name. The suite is the example of docs/suites.md, without
// the row whose client would be started.
func files(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"mine", "my", "my-scenario"} {
		asked(t, dir, []string{"new", name, "--backend", "redis"})
	}
	page, err := os.ReadFile("../../docs/suites.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	suite, _, _ := strings.Cut(rest, "```")
	suite = regexp.MustCompile(`(?m)^.*client:.*\n`).ReplaceAllString(suite, "")
	lay(t, filepath.Join(dir, "suite.yaml"), suite)
	lay(t, filepath.Join(dir, "ci/locks.yaml"), strings.ReplaceAll(suite, "mine.yaml", "../mine.yaml"))
}

// outline matches a placeholder.
var outline = regexp.MustCompile(`\b[A-Z]{3,}\b`)

// reading turns a command into one that reads the same input and starts nothing, not even a client of another
// language.
func (c commands) reading(args []string) []string {
	help := c.helpOnly || outline.MatchString(strings.Join(args, " "))
	for _, a := range args { // drop programs that would be started, and results of earlier commands
		help = help || a == "--client" || a == "--baseline" || strings.HasPrefix(a, "runs/")
	}
	switch verb := args[0]; {
	case verb == "help":
		return args[:1]
	case help:
	case verb == "run" && strings.HasSuffix(args[1], "*"): // a pattern: a dry run of all that match takes long
		return []string{"list", "scenarios", args[1]}
	case verb == "run" || verb == "suite":
		if !slices.Contains(args, "--provider") {
			args = append(args, "--provider", "local")
		}
		return append(args, "--dry-run")
	case verb == "list" || verb == "show" || verb == "version":
		return args
	}
	at := slices.Index(args, "--") // after it come another program's arguments
	if at < 0 {
		at = len(args)
	}
	return slices.Insert(slices.Clone(args), at, "--help")
}

// asked runs lockquake, which must not report an error.
func asked(t *testing.T, dir string, args []string) {
	t.Helper()
	if slices.Contains(args, "--help") { // reads no file
		var said strings.Builder
		if code := execute(args, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: &said}); code != 0 {
			t.Errorf("lockquake %s: exit code %d: %s", strings.Join(args, " "), code, said.String())
		}
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "lockquake", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("lockquake %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// lay writes an executable file.
func lay(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
