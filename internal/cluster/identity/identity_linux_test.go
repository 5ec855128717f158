package identity

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos"
)

// TestRootWithoutCapabilitiesIsRefused: a missing capability that would end a run half-way is reported before the run
// begins.
func TestRootWithoutCapabilitiesIsRefused(t *testing.T) {
	var missing chaos.Unavailable
	err := withoutCapabilities(func(c uint) bool { return c != unix.CAP_KILL && c != unix.CAP_SETUID })
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "this process has no CAP_KILL and no CAP_SETUID: ") {
		t.Errorf("without KILL and SETUID: %v", err)
	}
	if err := withoutCapabilities(func(uint) bool { return true }); err != nil {
		t.Error(err)
	}
}
