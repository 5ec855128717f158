package cluster

import (
	"path/filepath"
	"testing"
)

// localLeft looks for links and processes of a run on this machine.
func localLeft(t testing.TB, run string) {
	t.Helper()
	links, err := markedLinks()
	if err != nil {
		t.Error(err)
	}
	for name, o := range links {
		if o.Run == run {
			t.Errorf("the link %s is left", name)
		}
	}
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Error(err)
	}
	for _, path := range paths {
		if o, name, ok := markedProcess(path); ok && o.Run == run {
			t.Errorf("the process of %s is left at %s", name, path)
		}
	}
}
