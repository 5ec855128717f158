package cluster

import (
	"os"
	"path/filepath"
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
