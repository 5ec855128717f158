package imagestore

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Dockerfiles, which build.sh reads, say which images are built on demand.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../images/*/Dockerfile")
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
