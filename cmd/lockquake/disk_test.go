//go:build integration

package main

import (
	"os"
	"testing"

	"github.com/lockquake/lockquake/results"
)

// slowDisk is a scenario whose server waits for its disk, and is paused meanwhile.
const slowDisk = `name: slow-disk
claim: Each fsync takes half a second.
backend: {use: redis, lock: set-px-lua, persistence: everysec, ttl: 2s}
workload: {use: counter, clients: 2, hold: 20ms, resource: {use: register, guard: none}}
chaos:
  - {use: slow-disk, by: 500ms, on: redis-1, at: 200ms, for: 3s}
  - {use: pause, on: redis-1, at: 1s, for: 300ms}
run: {for: 5s, seed: 1}
expect: {judged: ">=1"}
`

// TestSlowDisk delays the syncs of a real server by a real agent, and by one that only claims to.
func TestSlowDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("processes of the local provider are traced by root only")
	}
	withAndWithout(t, slowDisk, "syncs,synced", "docker", func(deaf bool, r results.Report) {
		if len(r.Faults) < 2 {
			t.Errorf("deaf %t: faults %+v", deaf, r.Faults)
		}
		for _, f := range r.Faults {
			t.Logf("%s: %s, %s", f.Name, f.Receipt.Status, f.Receipt.Evidence)
			if f.Healed == nil || f.Healed.Status != "installed" {
				t.Errorf("%s: healed %+v", f.Name, f.Healed)
			}
			if bit := f.Receipt.Status == "installed"; f.Name == "slow-disk" && bit == deaf || f.Name == "pause" && !bit {
				t.Errorf("%s: %+v", f.Name, f.Receipt)
			}
		}
	})
}
