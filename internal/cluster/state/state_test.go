package state

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestStateDirectory: if another user has taken the usual name, runs get an unpredictable one.
func TestStateDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	usual := usualDir()
	if dir, err := Dir(); err != nil || dir != usual {
		t.Fatal(dir, err)
	}
	left, _, err := Scratch("first")
	if err != nil || filepath.Dir(left) != usual {
		t.Fatal(left, err)
	}
	if err := os.Rename(usual, usual+"-old"); err != nil { // it is still ours
		t.Fatal(err)
	}
	for _, take := range []func() error{
		func() error { return os.Mkdir(usual, 0o755) },
		func() error { return os.Symlink(t.TempDir(), usual) },
		func() error { return os.WriteFile(usual, nil, 0o600) },
	} {
		if err := take(); err != nil {
			t.Fatal(err)
		}
		dir, err := Dir()
		if err != nil || dir == usual {
			t.Errorf("the directory is %s, %v", dir, err)
		}
		_ = os.Remove(usual)
	}
	if err := os.Mkdir(usual, 0o755); err != nil {
		t.Fatal(err)
	}
	scratch, remove, err := Scratch("second")
	if err != nil || filepath.Dir(scratch) != usual+"-old" {
		t.Fatal(scratch, err)
	}
	if paths, err := Entries(); err != nil || !slices.Equal(paths, []string{filepath.Join(usual+"-old", filepath.Base(left)), scratch}) {
		t.Errorf("there are %v: %v", paths, err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
}
