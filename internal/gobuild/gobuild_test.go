package gobuild

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// proxy serves modules from a folder, and fails for all others.
func proxy(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, m := range []struct{ path, version, mod, file string }{
		{"example.org/lib", "v1.0.0", "", "package lib\n\nconst Is = `lib 1.0`\n"},
		{"example.org/lib", "v1.1.0", "", "package lib\n\nconst Is = `lib 1.1`\n\nconst New = `new`\n"},
		{"example.org/fork", "v1.5.0", "", "package lib\n\nconst Is = `fork 1.5`\n"},
		{"example.org/raises", "v1.0.0", "require example.org/lib v1.1.0\n", "package raises\n\nimport \"example.org/lib\"\n\nconst Is = lib.New\n"},
	} {
		folder := filepath.Join(dir, m.path, "@v")
		mod := "module " + m.path + "\n\ngo 1.18\n\n" + m.mod
		var packed bytes.Buffer
		z := zip.NewWriter(&packed)
		for name, text := range map[string]string{"go.mod": mod, "lib.go": m.file} {
			w, err := z.Create(m.path + "@" + m.version + "/" + name)
			if err == nil {
				_, err = w.Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, folder, m.version+".info", fmt.Sprintf("{%q: %q}", "Version", m.version))
		write(t, folder, "list", m.version+"\n") // the last one will do
		write(t, folder, m.version+".mod", mod)
		write(t, folder, m.version+".zip", packed.String())
	}
	for key, value := range map[string]string{
		"GOPROXY": "file://" + dir, "GOSUMDB": "off", "GONOPROXY": "", "GOPRIVATE": "", "GOMODCACHE": t.TempDir(), "GOFLAGS": "-modcacherw -mod=readonly",
	} {
		t.Setenv(key, value)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sources returns a program that prints the version of its library.
func sources(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "prog")
	write(t, dir, "go.mod", "module prog\n\ngo 1.18\n\nrequire example.org/lib v1.0.0\n")
	write(t, dir, "main.go", "package main\n\nimport \"example.org/lib\"\n\nfunc main() { print(lib.Is, more) }\n")
	write(t, dir, "more.go", "//go:build !new\n\npackage main\n\nconst more = ``\n")
	write(t, dir, "new.go", "//go:build new\n\npackage main\n\nimport \"example.org/lib\"\n\nconst more = ` ` + lib.New\n")
	return dir
}

// says returns the output of a built program.
func says(t *testing.T, path string, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestVersionsSideBySide(t *testing.T) {
	proxy(t)
	dir, cache := sources(t), t.TempDir()
	local := filepath.Join(t.TempDir(), "checkout")
	write(t, local, "go.mod", "module example.org/lib\n\ngo 1.18\n")
	write(t, local, "lib.go", "package lib\n\nconst Is = `mine`\n")
	lib := func(version string) []Module { return []Module{{Path: "example.org/lib", Version: version}} }
	built := 0
	b := func() *Builder { return &Builder{Cache: cache, Tell: func(string, ...any) { built++ }} } // each a process of its own
	paths := map[string]bool{}
	for range 2 {
		for _, c := range []struct {
			with []Module
			tags []string
			want string
		}{
			{lib("v1.0.0"), nil, "lib 1.0"},
			{lib("v1.1.0"), nil, "lib 1.1"},
			{lib("v1.1.0"), []string{"new"}, "lib 1.1 new"},
			{[]Module{{Path: "example.org/lib", Replacement: "example.org/fork", Version: "v1.5.0"}}, nil, "fork 1.5"},
			{[]Module{{Path: "example.org/lib", Replacement: local}}, nil, "mine"},
			{nil, nil, "lib 1.0"},
		} {
			path, err := b().Build(t.Context(), Source{Dir: dir, With: c.with, Tags: c.tags})
			if got := says(t, path, err); got != c.want {
				t.Errorf("%v %v: %q, want %q", c.with, c.tags, got, c.want)
			}
			paths[path] = true
		}
	}
	if built != 6 || len(paths) != 6 {
		t.Errorf("built %d programs, %d of them different; want 6: the second time they are there", built, len(paths))
	}
	one := b()
	for tags, want := range map[string]string{"": "lib 1.1", "new": "lib 1.1 new"} {
		source := Source{Dir: dir, With: lib("v1.1.0")}
		if tags != "" {
			source.Tags = []string{tags}
		}
		path, err := one.Build(t.Context(), source)
		if got := says(t, path, err); got != want {
			t.Errorf("one builder, tags %q: %q, want %q: rows that differ in tags alone run two programs", tags, got, want)
		}
	}
	write(t, local, "lib.go", "package lib\n\nconst Is = `mine, changed`\n")
	path, err := b().Build(t.Context(), Source{Dir: dir, With: []Module{{Path: "example.org/lib", Replacement: local}}})
	if got := says(t, path, err); got != "mine, changed" {
		t.Errorf("after the checkout was changed: %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || strings.Contains(string(text), "v1.1.0") {
		t.Errorf("the go.mod of the sources was changed: %s, %v", text, err)
	}
}

func TestBuildErrors(t *testing.T) {
	proxy(t)
	dir := sources(t)
	raised := sources(t)
	write(t, raised, "raised.go", "package main\n\nimport \"example.org/raises\"\n\nvar _ = raises.Is\n")
	write(t, raised, "go.mod", "module prog\n\ngo 1.18\n\nrequire example.org/raises v1.0.0\n\nrequire example.org/lib v1.1.0\n")
	for _, c := range []struct {
		source Source
		want   string
	}{
		{Source{Dir: dir, With: []Module{{Path: "example.org/lib", Version: "v9.0.0"}}}, "go get: go: example.org/lib@v9.0.0: "},
		{Source{Dir: dir, With: []Module{{Path: "example.org/nothing", Version: "v1.0.0"}}}, "example.org/nothing@v1.0.0: "},
		{Source{Dir: dir, With: []Module{{Path: "example.org/fork", Version: "v1.5.0"}}}, "example.org/fork@v1.5.0 was requested, but the program is built with none of it"},
		{Source{Dir: dir, Tags: []string{"new"}}, "undefined: lib.New"},
		{Source{Dir: filepath.Dir(dir)}, "is not a module: it has no go.mod"},
		// A requirement of another module raises the version that was asked for.
		{Source{Dir: raised, With: []Module{{Path: "example.org/lib", Version: "v1.0.0"}}}, "example.org/lib@v1.0.0 was requested, but the program is built with v1.1.0"},
	} {
		b := Builder{Cache: t.TempDir()}
		for range 2 {
			if path, err := b.Build(t.Context(), c.source); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %s, %v; want %q", c.source, path, err, c.want)
			}
		}
		if left, err := os.ReadDir(b.Cache); err != nil || len(left) > 0 {
			t.Errorf("%s: it leaves %v, %v", c.source, left, err)
		}
	}
}
