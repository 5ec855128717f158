package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOtherProgram tells a program that stands in from the running one, also from a copy of that.
func TestOtherProgram(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	twin, changed, missing := filepath.Join(dir, "twin"), filepath.Join(dir, "changed"), filepath.Join(dir, "missing")
	if err := os.WriteFile(twin, body, 0o600); err != nil {
		t.Fatal(err)
	}
	body[len(body)-1]++
	if err := os.WriteFile(changed, body, 0o600); err != nil {
		t.Fatal(err)
	}
	for named, want := range map[string]string{"": "", own: "", twin: "", changed: changed, missing: missing, "/bin/sh": "/bin/sh"} {
		t.Setenv(SelfVariable, named)
		if got := OtherProgram(); got != want {
			t.Errorf("%s=%s: %q stands in, should be %q", SelfVariable, named, got, want)
		}
	}
}

// What is built on demand is told by its Dockerfile, which build.sh reads.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../images/*/Dockerfile")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		key := filepath.Base(filepath.Dir(file))
		if says := strings.Contains(string(text), "\nLABEL org.lockquake.on-demand=true\n"); says != slices.Contains(OnDemand, key) {
			t.Errorf("image %s: its Dockerfile says on demand: %v", key, says)
		}
	}
}
