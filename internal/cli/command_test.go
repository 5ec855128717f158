package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTheProgramIsNamedAsAShellFindsIt: by its name on the PATH, else by the path that it was started by.
func TestTheProgramIsNamedAsAShellFindsIt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]string{
		"build/lockquake": "build/lockquake", "/opt/my tools/lockquake": "'/opt/my tools/lockquake'", "lockquake": Quoted(self),
	} {
		if got := StartedAs(word); got != want {
			t.Errorf("%s is named %s, want %s", word, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lockquake"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := StartedAs("build/lockquake"); got != "lockquake" {
		t.Errorf("it is on the PATH, and named %s", got)
	}
}
