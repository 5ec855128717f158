package all

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// plumbing are modules that do not affect a lock's behaviour.
var plumbing = []string{"google.golang.org/grpc", "go.uber.org/zap", "golang.org/x/", "google.golang.org/protobuf"}

// Reports name the version of every module that a backend imports.
func TestLibrariesAreNamed(t *testing.T) {
	for _, b := range All() {
		folder := filepath.Join("..", Folder(b))
		if _, err := os.Stat(folder); err != nil {
			t.Errorf("backend %s has no folder: %v", b.Name, err)
			continue
		}
		for path, file := range imports(t, folder) {
			named := slices.ContainsFunc(modules(Folder(b)), func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") })
			known := slices.ContainsFunc(plumbing, func(p string) bool { return strings.HasPrefix(path, p) })
			if !named && !known {
				t.Errorf("%s imports %s; its module belongs into Modules of the backend or of the lock (BuiltIn for a server within), "+
					"so that reports name its version", file, path)
			}
		}
	}
}

// modules returns the modules of the locks in a folder, and of its server if that is built into this program.
func modules(folder string) (out []string) {
	for _, b := range All() {
		if Folder(b) != folder {
			continue
		}
		out = slices.Concat(out, b.Modules, b.BuiltIn)
		for _, l := range b.Locks {
			out = append(out, l.Modules...)
		}
	}
	return out
}

// A run names the libraries of its own lock, not all of the service's.
func TestLibrariesAreThoseOfTheLock(t *testing.T) {
	for _, c := range []struct{ backend, lock, want string }{
		{"redis", "set-px-lua", "github.com/redis/go-redis/v9"},
		{"redis", "", "github.com/redis/go-redis/v9"},
		{"sentinel", "rueidislock", "github.com/redis/rueidis github.com/redis/rueidis/rueidislock"},
		{"redlock", "redsync", "github.com/redis/go-redis/v9 github.com/go-redsync/redsync/v4"},
	} {
		if got := strings.Join(OfClient(c.backend, c.lock), " "); got != c.want {
			t.Errorf("%s of %s is made of %q, should be %q", c.lock, c.backend, got, c.want)
		}
	}
}

// imports returns what the Go files below a folder import besides the standard library and this module.
func imports(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			host, _, _ := strings.Cut(p, "/")
			if strings.Contains(host, ".") && !strings.HasPrefix(p, "github.com/lockquake/lockquake/") {
				out[p] = path
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
