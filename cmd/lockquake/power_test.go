//go:build integration

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/results"
)

// blackout is a scenario in which the server loses power.
const blackout = `name: blackout
claim: What was not synced is gone.
backend: {use: redis, lock: set-px-lua, persistence: always, ttl: 2s}
workload: {use: counter, clients: 2, hold: 20ms, resource: {use: register, guard: none}}
chaos:
  - {use: power-loss, on: redis-1, at: 500ms, for: 500ms}
run: {for: 3s, seed: 1}
expect: {judged: ">=1"}
`

// loopDisks lists the loop devices over unlinked files, which belong to runs. Tests that make some must not run side
// by side.
func loopDisks(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), "(deleted)") {
			out = append(out, f)
		}
	}
	return out
}

// noLoopDisks demands that the number of such devices is as before within a few seconds.
func noLoopDisks(t *testing.T, before int) {
	t.Helper()
	var left []string
	if !wait.Within(5*time.Second, func() bool { left = loopDisks(t); return len(left) <= before }) {
		t.Errorf("loop devices are left: %v", left)
	}
}

// TestAlonePowerLoss cuts the power of a real server, and has an agent only claim to.
func TestAlonePowerLoss(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	before := len(loopDisks(t))
	withAndWithout(t, blackout, "disk-cut", "docker", func(deaf bool, r results.Report) {
		if len(r.Faults) != 1 || (r.Faults[0].Receipt.Status == "installed") == deaf {
			t.Fatalf("deaf %t: faults %+v", deaf, r.Faults)
		}
		healed := r.Faults[0].Healed
		t.Logf("%s; healed: %s", r.Faults[0].Receipt.Evidence, healed.Evidence)
		if strings.Contains(healed.Evidence, "acknowledged write is gone") {
			t.Errorf("deaf %t: a server that syncs before it answers lost a write: %s", deaf, healed.Evidence)
		}
		noLoopDisks(t, before)
	})
}
