//go:build integration

package main

import (
	"testing"

	"github.com/lockquake/lockquake/results"
)

// amnesia is a scenario whose server loses its disk.
const amnesia = `name: amnesia
claim: The server comes back without its data.
backend: {use: redis, lock: set-px-lua, persistence: always, ttl: 2s}
workload: {use: counter, clients: 2, hold: 20ms, resource: {use: register, guard: none}}
chaos:
  - {use: restart, data: lose, on: redis-1, at: 500ms}
run: {for: 3s, seed: 1}
expect: {judged: ">=1", double_grants: ">=0", stale_writes: ">=0", lost_updates: ">=0"}
`

// TestDataThatIsNotLost sabotages the agent's access to the data directory: the fault has no effect, so the run is
// unknown.
func TestDataThatIsNotLost(t *testing.T) {
	withAndWithout(t, amnesia, "data", "local", func(deaf bool, r results.Report) {
		if len(r.Faults) != 1 || (r.Faults[0].Receipt.Status == "installed") == deaf {
			t.Errorf("deaf %t: faults %+v", deaf, r.Faults)
		}
	})
}
