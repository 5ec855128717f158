package servers

import (
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// clockError is how inexact a node's report of its wall clock may be: some report whole seconds, or the time at which
// a connection was made.
const clockError = 2 * time.Second

// Clock compares a node's wall clock with this machine's before and after the question.
func Clock(t *testing.T, s topology.Service, node string) {
	t.Helper()
	before := time.Now()
	text, err := s.Ask(t.Context(), node, "clock")
	after := time.Now()
	at, wrong := time.Parse(time.RFC3339, text)
	if err != nil || wrong != nil || at.Before(before.Add(-clockError)) || at.After(after.Add(clockError)) {
		t.Errorf("clock of %s: %q, %v; it was asked at %v", node, text, err, before)
	}
}
