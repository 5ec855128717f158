package servers

import (
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// clockError is by how much a node's account of its wall clock may be off: some tell whole seconds, or when a
// connection was made.
const clockError = 2 * time.Second

// Clock holds a node's wall clock to this machine's as it was before and after the question.
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
