package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/results"
)

// Run is one run of a row as it is remembered.
type Run struct {
	Dir     string            `json:"dir"`
	Verdict string            `json:"verdict"` // pass, fail, unknown, or "error" where there is none
	Reasons []string          `json:"reasons,omitempty"`
	Grants  int64             `json:"grants"`
	Counts  map[string]*int64 `json:"counts"`
	// Acknowledged is how many elements of a set were.
	Acknowledged int64 `json:"acknowledged,omitempty"`

	Load    string    `json:"load"` // of the machine, just before the run
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`        // of the machine, teardown and judging included
	Kept    bool      `json:"kept,omitempty"` // on the servers of the run before
}

// failed tells whether the run gave the wrong answer, other than none, or than breaking down.
func (r Run) failed() bool { return r.Verdict == string(results.Fail) }

// State is a row's runs so far; it is written after every run, so that an interruption costs one run at most.
type State struct {
	Key      string            `json:"key"` // of the files that the figures depend on
	Commit   string            `json:"commit"`
	Versions map[string]string `json:"versions"` // of the service and of what it ran on
	Runs     []Run             `json:"runs"`
	Missing  string            `json:"missing,omitempty"` // why the row could not be run when it was last tried
	Aside    []Aside           `json:"aside,omitempty"`   // runs that were put aside by hand

	stale bool // Key is not that of the files as they are now
}

// Aside are runs of the same files that were put aside by hand, so that their row begins anew. They are not forgotten.
type Aside struct {
	Why     string         `json:"why"`
	Commit  string         `json:"commit"`
	Runs    map[string]int `json:"runs"` // by verdict
	Reasons []string       `json:"reasons,omitempty"`
}

// putAside begins the row anew.
func (s *State) putAside(why string) {
	a := Aside{Why: why, Commit: s.Commit, Runs: map[string]int{}}
	for i, r := range s.Runs {
		a.Runs[r.Verdict]++
		if r.Verdict != string(passed) {
			a.Reasons = append(a.Reasons, fmt.Sprintf("run %d: %s; %s (load %s)", i+1, r.Verdict, strings.Join(r.Reasons, "; "), r.Load))
		}
	}
	s.Aside, s.Runs = append(s.Aside, a), nil
}

// done is how many of a row's runs count for how many it asks for.
func (s State) done(row Row) int {
	n := 0
	for _, r := range s.Runs {
		if row.takes(r) {
			n++
		}
	}
	return n
}

// progress says what stands behind the number of a row's runs: how many are still to come, and whether it was begun anew.
func (s State) progress(row Row) string {
	out := ""
	if done := s.done(row); done < row.Count {
		out += fmt.Sprintf(" (%d to go)", row.Count-done)
	}
	if len(s.Aside) > 0 {
		out += " †"
	}
	return out
}

// from names the commit that the runs are of, and says so where something has changed since.
func (s State) from() string {
	if s.stale {
		return s.Commit + `\*`
	}
	return s.Commit
}

// loadState reads the state of a row; one of other files, or none, is empty.
func loadState(path, key string) (State, error) {
	s, err := keptState(path)
	if err != nil || s.Key != key {
		return State{Key: key}, err
	}
	return s, nil
}

// keptState reads the state of a row whatever files it is of; without any it is empty.
func keptState(path string) (State, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return State{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// save writes the state beside its place and moves it there, so that a dying machine leaves the old one.
func (s State) save(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// matters tells whether a file can change a figure.
func matters(path string) bool {
	return !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".md") && !strings.Contains(path, "/testdata/")
}

// code is what a compiler takes of a Go file: its tokens, without comments but those that are directives. What is only said better
// changes no figure.
func code(src []byte) []byte {
	var out bytes.Buffer
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(src)), src, nil, scanner.ScanComments)
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return out.Bytes()
		case tok != token.COMMENT || strings.HasPrefix(text, "//go:"):
			fmt.Fprintf(&out, "%d %s\n", tok, text)
		}
	}
}

// worktree is the working tree as it was when it was first looked at. Many rows depend on the same files: each is read once.
type worktree struct {
	top     string
	listed  map[string][]string // the files that matter, by the paths that name them
	digests map[string]string   // of a file's contents; empty for one that is gone
}

func newWorktree(top string) *worktree {
	return &worktree{top: top, listed: map[string][]string{}, digests: map[string]string{}}
}

// key hashes the names and contents of all files that the paths name, as they are in the working tree, and what else matters.
func (t *worktree) key(paths, beside []string) (string, error) {
	files, err := t.files(paths)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, m := range beside {
		fmt.Fprintln(h, m)
	}
	for _, f := range files {
		d, err := t.digest(f)
		if err != nil {
			return "", err
		}
		if d != "" {
			fmt.Fprintf(h, "%s %s\n", f, d)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// files lists those that matter, in order, each once.
func (t *worktree) files(paths []string) ([]string, error) {
	asked := strings.Join(paths, "\n")
	if files, ok := t.listed[asked]; ok {
		return files, nil
	}
	files, err := gitLines(t.top, append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, globs(paths)...)...)
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	files = slices.DeleteFunc(slices.Compact(files), func(f string) bool { return !matters(f) })
	t.listed[asked] = files
	return files, nil
}

// digest hashes what a file says; of one that is deleted and not yet committed it is empty.
func (t *worktree) digest(file string) (string, error) {
	if d, ok := t.digests[file]; ok {
		return d, nil
	}
	b, err := os.ReadFile(filepath.Join(t.top, file))
	if errors.Is(err, fs.ErrNotExist) {
		t.digests[file] = ""
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(file, ".go") {
		b = code(b)
	}
	t.digests[file] = fmt.Sprintf("%x", sha256.Sum256(b))
	return t.digests[file], nil
}

// commit names the commit of the working tree; "-dirty" where a file that matters differs from it.
func commit(top string, paths []string) (string, error) {
	head, err := gitLines(top, "rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	changed, err := gitLines(top, append([]string{"status", "--porcelain", "-z", "--untracked-files=all", "--"}, globs(paths)...)...)
	if err != nil {
		return "", err
	}
	for _, c := range changed {
		if matters(c) {
			return head[0] + "-dirty", nil
		}
	}
	return head[0], nil
}

// globs makes pathspecs in which * stays within one folder.
func globs(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		out = append(out, ":(glob)"+p)
		if !strings.Contains(p, "*") {
			out = append(out, ":(glob)"+p+"/**")
		}
	}
	return out
}

// gitLines runs git in the tree and returns the parts of its output.
func gitLines(top string, args ...string) ([]string, error) {
	cmd := exec.Command("git", append([]string{"-C", top}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 || r == '\n' }), nil
}
