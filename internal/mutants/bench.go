package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The outcomes of a mutant.
const (
	Killed   = "killed"
	Survived = "survived"
	Broken   = "broken" // it could not be tried
)

// Verdict is the outcome of one mutant.
type Verdict struct {
	Outcome string `json:"outcome"`
	By      string `json:"by,omitempty"` // the test that noticed it, or why it could not be tried
	Sources string `json:"sources"`      // hash of the tested sources
}

func (v Verdict) by() string {
	if v.By == "" {
		return ""
	}
	return " (" + v.By + ")"
}

// timeout bounds the tests of one package: a mutant that makes them hang counts as noticed. On a busy machine it must
// be longer.
const timeout = 2 * time.Minute

// skipped matches tests of how long something takes: run beside other mutants, they fail for any mutant.
const skipped = "^TestHandMadeRunsAreBounded$"

// bench tries mutants.
type bench struct {
	root    string // of the module, absolute
	dir     string // of overlays, and of the temporary files of tests
	timeout time.Duration

	variants *variants // nil: each mutant is built alone

	built sync.Map // by package: builds its tests with all variants, once

	mu      sync.Mutex
	plain   map[string]error          // by package and tests: their result without a mutant
	noticed map[string]map[string]int // by package: how many mutants each of its tests noticed
}

// inMemory is a folder for temporary files that costs no disk. With a busy disk, the second judge's tests of two
// hosts, which write histories to files, took 240 s instead of 10.
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
	return &bench{
		root: root, dir: dir, timeout: timeout, plain: map[string]error{}, noticed: map[string]map[string]int{},
	}, err
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// trial is the code to test: a variant, or else an overlay.
type trial struct {
	variant int
	overlay string
}

// try runs the tests with a mutant, one package after the other, until one notices.
func (b *bench) try(ctx context.Context, m Mutant) Verdict {
	var over trial
	if b.variants != nil {
		over.variant = b.variants.number(m)
	}
	if over.variant == 0 {
		var err error
		if over.overlay, err = b.overlay(m); err != nil {
			return Verdict{Outcome: Broken, By: err.Error()}
		}
		defer func() { _ = os.RemoveAll(filepath.Dir(over.overlay)) }()
	}
	for _, pkg := range m.packages() {
		out, err := b.likely(ctx, over, pkg, m.Run)
		if err == nil {
			out, err = b.test(ctx, over, pkg, m.Run)
		}
		exited := (*exec.ExitError)(nil)
		switch {
		case ctx.Err() != nil:
			return Verdict{Outcome: Broken, By: ctx.Err().Error()}
		case err == nil:
		case !errors.As(err, &exited) || strings.Contains(out, "[build failed]") ||
			strings.Contains(out, "[setup failed]"):
			return Verdict{Outcome: Broken, By: lastLines(err.Error() + "\n" + out)}
		default:
			if err := b.unchanged(ctx, pkg, m.Run); err != nil {
				return Verdict{Outcome: Broken, By: err.Error()}
			}
			by := b.failed(out)
			b.notice(pkg, by)
			return Verdict{Outcome: Killed, By: pkg + " " + by}
		}
	}
	return Verdict{Outcome: Survived}
}

// notice counts the test that noticed a mutant.
func (b *bench) notice(pkg, by string) {
	name, _, _ := strings.Cut(by, "/")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noticed[pkg] == nil {
		b.noticed[pkg] = map[string]int{}
	}
	if strings.HasPrefix(name, "Test") {
		b.noticed[pkg][name]++
	}
}

// likely runs the few tests of a package that noticed the most mutants so far. Most mutants need no others.
func (b *bench) likely(ctx context.Context, over trial, pkg, run string) (string, error) {
	const few = 4
	b.mu.Lock()
	seen := b.noticed[pkg]
	names := slices.SortedFunc(maps.Keys(seen), func(x, y string) int {
		return cmp.Or(cmp.Compare(seen[y], seen[x]), cmp.Compare(x, y))
	})
	b.mu.Unlock()
	if len(names) == 0 || over.variant == 0 || run != "" {
		return "", nil
	}
	return b.test(ctx, over, pkg, "^("+strings.Join(names[:min(few, len(names))], "|")+")$")
}

// unchanged returns an error if tests prove nothing: they fail without a mutant, too.
func (b *bench) unchanged(ctx context.Context, pkg, run string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err, known := b.plain[pkg+" "+run]
	if !known {
		out, failure := b.test(ctx, trial{}, pkg, run)
		if failure != nil {
			err = fmt.Errorf("%s fails without a mutant: %s", pkg, b.failed(out))
		}
		b.plain[pkg+" "+run] = err
	}
	return err
}

// overlay writes the mutated file, and the overlay file that replaces the real one by it.
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

// test runs the tests of a package. The tests with variants, and those of the unchanged code, are built once.
func (b *bench) test(ctx context.Context, over trial, pkg, run string) (string, error) {
	if b.variants == nil || over.overlay != "" {
		return command(ctx, b.root, b.environment(0), "go", "test", "-overlay", over.overlay, "-vet=off", "-failfast",
			"-count=1", "-run", run, "-skip", skipped, "-timeout", b.timeout.String(), pkg)
	}
	path, err := b.binary(ctx, pkg)
	if err != nil {
		return "", err
	}
	return command(ctx, filepath.Join(b.root, filepath.FromSlash(pkg)), b.environment(over.variant), path,
		"-test.failfast", "-test.count=1", "-test.run", run, "-test.skip", skipped, "-test.timeout", b.timeout.String(),
		"-test.paniconexit0")
}

// binary builds the tests of a package with all variants.
func (b *bench) binary(ctx context.Context, pkg string) (string, error) {
	build, _ := b.built.LoadOrStore(pkg, sync.OnceValues(func() (string, error) {
		path := filepath.Join(b.dir, strings.ReplaceAll(filepath.ToSlash(filepath.Clean(pkg)), "/", "-")+".test")
		out, err := command(ctx, b.root, b.environment(0), "go", "test", "-c", "-overlay", b.variants.overlay, "-vet=off",
			"-o", path, pkg)
		if err != nil {
			err = fmt.Errorf("the tests of %s are not built: %s", pkg, lastLines(out))
		}
		return path, err
	}))
	return build.(func() (string, error))()
}

func (b *bench) environment(variant int) []string {
	return []string{"TMPDIR=" + b.dir, "GOTMPDIR=" + b.dir, chosen + "=" + strconv.Itoa(variant)}
}

// command runs a program with its child processes, and returns all output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var failing = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failed returns the name of the test that noticed.
func (b *bench) failed(out string) string {
	all := failing.FindAllStringSubmatch(out, -1)
	switch {
	case len(all) > 0:
		return all[len(all)-1][1]
	case strings.Contains(out, "panic: test timed out"):
		return "timed out after " + strconv.Itoa(int(b.timeout.Seconds())) + " s"
	}
	return "crashed"
}

func lastLines(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(lines[:min(4, len(lines))], " / ")
}
