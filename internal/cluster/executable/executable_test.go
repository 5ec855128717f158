package executable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestOtherProgram: a stand-in is distinguished from the running program, and from a copy of it.
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
		if got := Other(); got != want {
			t.Errorf("%s=%s: %q stands in, should be %q", SelfVariable, named, got, want)
		}
	}
}

func TestStaticBinaryIsRecognised(t *testing.T) {
	if err := Static("/bin/sh"); err == nil {
		t.Error("a program with shared libraries was taken")
	}
	if err := Static("place_test.go"); err == nil {
		t.Error("a text was taken for a program")
	}
	t.Setenv("LOCKQUAKE_BIN", "")
	if _, err := Self(""); err == nil {
		t.Error("the test binary was taken for lockquake's own")
	}
	t.Setenv("LOCKQUAKE_BIN", "/bin/sh")
	if got, err := Self(""); err != nil || got != "/bin/sh" {
		t.Errorf("LOCKQUAKE_BIN gives %q, %v", got, err)
	}
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip(err)
	}
}
