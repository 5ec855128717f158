package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

// TestStateDirectory: where another user has taken the usual name, runs have one that nobody could take first, and what is left in either is swept.
func TestStateDirectory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	usual := stateDirName()
	if dir, err := stateDir(); err != nil || dir != usual {
		t.Fatal(dir, err)
	}
	left, _, err := Scratch("first")
	if err != nil || filepath.Dir(left) != usual {
		t.Fatal(left, err)
	}
	if err := os.Rename(usual, usual+"-old"); err != nil { // it is ours still
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
		dir, err := stateDir()
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
	if err := os.Remove(filepath.Join(usual+"-old", filepath.Base(left), ownerFile)); err != nil {
		t.Fatal(err)
	}
	var s Swept
	if err := s.directories(SweepOptions{Mechanisms: all.All()}); err != nil || len(s.Directories) > 0 {
		t.Errorf("%v was swept, which is under way: %v", s.Directories, err)
	}
	dead := owner.Self(filepath.Base(scratch), false)
	dead.PID, dead.Start = 1<<22+1, 1
	if err := os.WriteFile(filepath.Join(scratch, ownerFile), []byte(dead.Tag()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.directories(SweepOptions{Mechanisms: all.All()}); err != nil || !slices.Equal(s.Directories, []string{scratch}) {
		t.Errorf("%v was swept, want %s: %v", s.Directories, scratch, err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
}
