package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/state"
)

// TestSweepOfStateDirectories: leftovers of dead runs are swept, even in a state directory that replaced the usual one.
func TestSweepOfStateDirectories(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	usual, err := state.Dir()
	if err != nil {
		t.Fatal(err)
	}
	left, _, err := state.Scratch("first")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(usual, usual+"-old"); err != nil { // it is still ours
		t.Fatal(err)
	}
	if err := os.Mkdir(usual, 0o755); err != nil {
		t.Fatal(err)
	}
	scratch, _, err := state.Scratch("second")
	if err != nil || filepath.Dir(scratch) != usual+"-old" {
		t.Fatal(scratch, err)
	}
	if err := os.Remove(filepath.Join(usual+"-old", filepath.Base(left), state.OwnerFile)); err != nil {
		t.Fatal(err)
	}
	var s Swept
	if err := s.directories(SweepOptions{Mechanisms: all.All()}); err != nil || len(s.Directories) > 0 {
		t.Errorf("%v was swept, which is under way: %v", s.Directories, err)
	}
	dead := owner.Self(filepath.Base(scratch), false)
	dead.PID, dead.Start = 1<<22+1, 1
	if err := os.WriteFile(filepath.Join(scratch, state.OwnerFile), []byte(dead.Tag()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.directories(SweepOptions{Mechanisms: all.All()}); err != nil || !slices.Equal(s.Directories, []string{scratch}) {
		t.Errorf("%v was swept, want %s: %v", s.Directories, scratch, err)
	}
}
