// Package gobuild builds a user's own client from its Go sources, with the requested versions of modules. Each set of
// versions gets its own program, so that several can be judged side by side.
//
// It works on a copy of go.mod only (go build -modfile): the sources stay where they are. Programs are cached by the
// hash of the sources, the versions and the version of go.
package gobuild

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Module is a module that a program is built with.
type Module struct {
	Path        string
	Replacement string // the module or folder that replaces it; "": none
	Version     string // "": the folder's own
}

// Source is the input of a build.
type Source struct {
	Dir  string // of a main package with its own go.mod
	With []Module
	Tags []string
}

// Builder builds programs. It tries each once.
type Builder struct {
	Cache string                           // the folder of the built programs
	Tell  func(format string, args ...any) // announces each build, which may take a while; nil: no announcements

	mu    sync.Mutex
	tried map[string]attempt
}

type attempt struct {
	path string
	err  error
}

// Build returns the path of the program, alone in its folder. An error holds the go command's message.
func (b *Builder) Build(ctx context.Context, s Source) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := s.String()
	if a, ok := b.tried[key]; ok {
		return a.path, a.err
	}
	path, err := b.build(ctx, s)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if b.tried == nil {
		b.tried = map[string]attempt{}
	}
	b.tried[key] = attempt{path, err}
	return path, err
}

func (b *Builder) build(ctx context.Context, s Source) (string, error) {
	if _, err := os.Stat(filepath.Join(s.Dir, "go.mod")); err != nil {
		return "", fmt.Errorf("%s is not a module: it has no go.mod", s.Dir)
	}
	for i, m := range s.With { // go reads them from the copied go.mod
		if m.Version == "" && !filepath.IsAbs(m.Replacement) {
			s.With = slices.Clone(s.With)
			s.With[i].Replacement = filepath.Join(s.Dir, m.Replacement)
		}
	}
	key, err := hashOf(ctx, s)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.Cache, key)
	path := filepath.Join(dir, "bin", filepath.Base(s.Dir))
	if err := check(path, s.With); err == nil {
		return path, nil
	}
	if b.Tell != nil {
		b.Tell("building %s", s)
	}
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(b.Cache, "new-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := s.compile(ctx, work); err != nil {
		return "", err
	}
	if err := check(filepath.Join(work, "bin", filepath.Base(s.Dir)), s.With); err != nil {
		return "", err
	}
	_ = os.RemoveAll(dir) // the folder there was incomplete
	if err := os.Rename(work, dir); err != nil {
		if check(path, s.With) == nil { // another process was faster
			return path, nil
		}
		return "", err
	}
	return path, nil
}

// String returns the tags and versions that distinguish this build from others of the same source.
func (s Source) String() string {
	out := s.Dir
	if len(s.Tags) > 0 {
		out += " -tags=" + strings.Join(s.Tags, ",")
	}
	for _, m := range s.With {
		out += " " + m.String()
	}
	return out
}

// String returns the module in the form that go get and go mod edit take.
func (m Module) String() string {
	out := m.Path
	if m.Replacement != "" {
		out += "=" + m.Replacement
	}
	if m.Version != "" {
		out += "@" + m.Version
	}
	return out
}

// compile builds the program into work/bin.
func (s Source) compile(ctx context.Context, work string) error {
	mod := filepath.Join(work, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil && (name == "go.mod" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, name), data, 0o644); err != nil {
			return err
		}
	}
	edit, get := []string{"mod", "edit"}, []string{"get", "-modfile=" + mod}
	for _, m := range s.With {
		if m.Replacement != "" {
			edit = append(edit, "-replace="+m.String())
		} else {
			get = append(get, m.String())
		}
	}
	if len(edit) > 2 {
		if _, err := s.run(ctx, append(edit, mod)...); err != nil {
			return err
		}
	}
	if len(get) > 2 {
		if _, err := s.run(ctx, get...); err != nil {
			return err
		}
	}
	_, err := s.run(ctx, "build", "-modfile="+mod, "-trimpath", "-buildvcs=false", "-tags="+strings.Join(s.Tags, ","),
		"-o", filepath.Join(work, "bin", filepath.Base(s.Dir)), ".")
	return err
}

// run runs the go command in the folder of the sources. Programs are for the nodes: Linux, without shared libraries.
func (s Source) run(ctx context.Context, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = s.Dir
	c.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"), "GOWORK=off",
		"CGO_ENABLED=0", "GOOS=linux")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err == nil {
		return out, nil
	}
	var lines []string
	for line := range strings.Lines(errs.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "go: downloading") &&
			!strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil, fmt.Errorf("go %s: %s", args[0], strings.Join(lines, "; "))
}

// check reports whether a program exists and is built with these versions. It reads the versions recorded in the
// program, since those requested may differ.
func check(path string, with []Module) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	for _, m := range with {
		if m.Version == "" {
			continue
		}
		got := "none of it"
		for _, d := range info.Deps {
			if d.Path == m.Path {
				got = d.Version
				if d.Replace != nil {
					got = d.Replace.Version
				}
			}
		}
		if got != m.Version && got != m.Version+"+incompatible" {
			return fmt.Errorf("%s was requested, but the program is built with %s", m,
				cmp.Or(got, "one without a version"))
		}
	}
	return nil
}

// hashOf hashes all inputs of a program: its sources, those of the replacing folders, the versions and go's own.
func hashOf(ctx context.Context, s Source) (string, error) {
	h := sha256.New()
	version, err := s.run(ctx, "env", "GOVERSION", "GOARCH")
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%s%q%q", version, s.With, s.Tags)
	folders := []string{s.Dir}
	for _, m := range s.With {
		if m.Version == "" {
			folders = append(folders, m.Replacement)
		}
	}
	text, err := s.run(ctx, "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var mod struct {
		Replace []struct {
			New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal(text, &mod); err != nil {
		return "", err
	}
	for _, r := range mod.Replace {
		if r.New.Version == "" {
			folder := r.New.Path
			if !filepath.IsAbs(folder) {
				folder = filepath.Join(s.Dir, folder)
			}
			folders = append(folders, folder)
		}
	}
	for _, folder := range folders {
		if err := hashFolder(h, folder); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:24], nil
}

// hashFolder hashes all files of a module, except other modules within it.
func hashFolder(h hash.Hash, folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != folder {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
		}
		if !d.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(h, "\n%s\n", path)
		_, err = io.Copy(h, f)
		return err
	})
}
