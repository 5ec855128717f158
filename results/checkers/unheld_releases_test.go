package checkers

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// TestGrantsOfUnreadLocksAreNotKept: a run whose service is never asked may have any number of grants.
func TestGrantsOfUnreadLocksAreNotKept(t *testing.T) {
	c := newUnheldReleases(results.Run{Locks: []string{"lock-0"}}).(*unheldReleases)
	for op := range uint32(100) {
		c.Observe(&history.Event{Kind: history.Acquire, Phase: history.Ok, Op: op + 1})
	}
	if len(c.ends) > 0 {
		t.Errorf("%d of 100 grants are kept", len(c.ends))
	}
}
