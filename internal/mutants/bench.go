package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What can become of a mutant.
const (
	Killed   = "killed"
	Survived = "survived"
	Broken   = "broken" // it could not be tried
)

// Verdict is what became of one mutant.
type Verdict struct {
	Outcome string `json:"outcome"`
	By      string `json:"by,omitempty"` // the test that noticed, or why it could not be tried
	Sources string `json:"sources"`      // hash of what was tested
}

func (v Verdict) by() string {
	if v.By == "" {
		return ""
	}
	return " (" + v.By + ")"
}

// timeout bounds the tests of one package: a mutant that makes them hang is noticed.
const timeout = 2 * time.Minute

// skipped are tests of how long something takes: beside other mutants they fail for any.
const skipped = "^TestHandMadeRunsAreBounded$"

// bench tries mutants.
type bench struct {
	root string // of the module, absolute
	dir  string // of overlays, and of the temporary files of tests

	mu    sync.Mutex
	plain map[string]error // by package and tests: what they say of the code without a mutant
}

// inMemory is where temporary files cost no disk: on a busy one the second judge's two hosts, whose histories are
// files, took 240 s in place of 10.
const inMemory = "/dev/shm"

func newBench(root string) (*bench, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	parent := ""
	if info, err := os.Stat(inMemory); err == nil && info.IsDir() {
		parent = inMemory
	}
	dir, err := os.MkdirTemp(parent, "mutants-")
	return &bench{root: root, dir: dir, plain: map[string]error{}}, err
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// try runs the tests over a mutant, one package after the other, until one notices.
func (b *bench) try(ctx context.Context, m Mutant) Verdict {
	overlay, err := b.overlay(m)
	if err != nil {
		return Verdict{Outcome: Broken, By: err.Error()}
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(overlay)) }()
	for _, pkg := range m.packages() {
		out, err := b.test(ctx, overlay, pkg, m.Run)
		exited := (*exec.ExitError)(nil)
		switch {
		case ctx.Err() != nil:
			return Verdict{Outcome: Broken, By: ctx.Err().Error()}
		case err == nil:
		case !errors.As(err, &exited) || strings.Contains(out, "[build failed]") ||
			strings.Contains(out, "[setup failed]"):
			return Verdict{Outcome: Broken, By: lastLines(out)}
		default:
			if err := b.unchanged(ctx, pkg, m.Run); err != nil {
				return Verdict{Outcome: Broken, By: err.Error()}
			}
			return Verdict{Outcome: Killed, By: pkg + " " + failed(out)}
		}
	}
	return Verdict{Outcome: Survived}
}

// unchanged says why tests prove nothing: they fail without a mutant, too.
func (b *bench) unchanged(ctx context.Context, pkg, run string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err, known := b.plain[pkg+" "+run]
	if !known {
		out, failure := b.test(ctx, "", pkg, run)
		if failure != nil {
			err = fmt.Errorf("%s fails without a mutant: %s", pkg, failed(out))
		}
		b.plain[pkg+" "+run] = err
	}
	return err
}

// overlay writes the mutated file, and the file that lays it over the real one.
func (b *bench) overlay(m Mutant) (string, error) {
	text, err := m.apply(b.root)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(dir, filepath.Base(m.at.file)), filepath.Join(dir, "overlay.json")
	replace := map[string]map[string]string{"Replace": {filepath.Join(b.root, filepath.FromSlash(m.at.file)): file}}
	j, err := json.Marshal(replace)
	return overlay, errors.Join(err, os.WriteFile(file, text, 0o600), os.WriteFile(overlay, j, 0o600))
}

func (b *bench) test(ctx context.Context, overlay, pkg, run string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-failfast", "-count=1", "-run", run,
		"-skip", skipped, "-timeout", timeout.String(), pkg)
	cmd.Dir, cmd.Env = b.root, append(os.Environ(), "TMPDIR="+b.dir, "GOTMPDIR="+b.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the tests that it starts
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var failing = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failed names the test that noticed.
func failed(out string) string {
	all := failing.FindAllStringSubmatch(out, -1)
	switch {
	case len(all) > 0:
		return all[len(all)-1][1]
	case strings.Contains(out, "panic: test timed out"):
		return "timed out after " + strconv.Itoa(int(timeout.Seconds())) + " s"
	}
	return "crashed"
}

func lastLines(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(lines[:min(4, len(lines))], " / ")
}
