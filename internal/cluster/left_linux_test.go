package cluster

import (
	"path/filepath"
	"testing"

	"github.com/lockquake/lockquake/internal/cluster/processes"
)

// localLeft looks for processes of a run on this machine. Its network vanishes with the last of them.
func localLeft(t testing.TB, run string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Error(err)
	}
	for _, path := range paths {
		if o, name, ok := processes.ReadMark(path); ok && o.Run == run {
			t.Errorf("the process of %s is left at %s", name, path)
		}
	}
}
