package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
)

// TestSupervisorLimitsAreReported: a limit that would end a run half-way is reported before the run begins.
func TestSupervisorLimitsAreReported(t *testing.T) {
	var missing chaos.Unavailable
	err := enoughFiles(9, 64)
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "too many open files: ulimit -n allows 64 here, and 400 are needed") {
		t.Errorf("64 file handles for 9 nodes: %v", err)
	}
	if err := enoughFiles(9, 400); err != nil {
		t.Error(err)
	}
}
