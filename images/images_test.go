package images

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// engine replaces the engine's command line. It has a base image, and records what it is asked to build.
const engine = `#!/bin/sh
case "$1" in
build) shift; for last; do :; done; echo "build $*" >>"$KEPT/called"; cat "$last"/* >>"$KEPT/built" ;;
*) exit 0 ;;
esac
`

// withEngine replaces Docker by the engine, and returns the directory of its records.
func withEngine(t *testing.T) (kept string) {
	t.Helper()
	kept = t.TempDir()
	docker := filepath.Join(t.TempDir(), "docker")
	if err := os.WriteFile(docker, []byte(engine), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER", docker)
	t.Setenv("KEPT", kept)
	return kept
}

// TestBuild: the embedded script builds one image from the same Dockerfile as in the tree, using only its own copies.
func TestBuild(t *testing.T) {
	kept := withEngine(t)
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir(t.TempDir())
	want, err := os.ReadFile(filepath.Join(testDir, "redis", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if err := Build(t.Context(), &said, "redis"); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	called, _ := os.ReadFile(filepath.Join(kept, "called"))
	if built, _ := os.ReadFile(filepath.Join(kept, "built")); !bytes.Equal(built, want) || !strings.Contains(string(called), "-t lockquake-redis:latest") {
		t.Errorf("%s\nout of\n%s", called, built)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestBuildOfJava: the Java clients are next to the Dockerfile that compiles them.
func TestBuildOfJava(t *testing.T) {
	kept := withEngine(t)
	var said bytes.Buffer
	if err := Build(t.Context(), &said, "java"); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	built, _ := os.ReadFile(filepath.Join(kept, "built"))
	for _, class := range []string{"Lockquake", "CuratorLock", "CuratorSemaphore"} {
		if want, err := os.ReadFile(filepath.Join(testDir, "../clients/java", class+".java")); err != nil || !bytes.Contains(built, want) {
			t.Errorf("%s.java is not where the image is built: %v", class, err)
		}
	}
}

// testDir is the directory of the package, where the tests start.
var testDir, _ = os.Getwd()

func TestNoEngine(t *testing.T) {
	t.Setenv("DOCKER", "no-such-program")
	var said bytes.Buffer
	if err := Build(t.Context(), &said); !errors.Is(err, ErrMissing) || !strings.Contains(said.String(), "there is no no-such-program command") {
		t.Errorf("%v\n%s", err, said.String())
	}
}

// TestNames compares the embedded images with the directories.
func TestNames(t *testing.T) {
	found, err := filepath.Glob("*/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found {
		found[i] = filepath.Dir(f)
	}
	if !slices.Equal(Names(), found) || !slices.Contains(found, "redis") {
		t.Errorf("%q, and the folders are %q", Names(), found)
	}
}
