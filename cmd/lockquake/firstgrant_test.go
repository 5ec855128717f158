//go:build bench

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/results"
)

// TestFirstGrant prints, for each backend, the time from `lockquake run` to the first judged grant, and the part of it
// that is start-up, from env.json. It starts the program in LOCKQUAKE_BIN, as a user would.
func TestFirstGrant(t *testing.T) {
	n, names, p := times(t, "LOCKQUAKE_ROUNDS", 3), measured(), providerFor(t, "docker", "the time to the first grant")
	fmt.Printf("from run to the first judged grant, and start-up in it, in seconds: medians (least to most) of %d; load %s\n",
		n, readFirstLine("/proc/loadavg"))
	for _, name := range names {
		var both trial
		for range n {
			grant, up := firstGrant(t, p, name)
			both[0], both[1] = append(both[0], grant), append(both[1], up)
		}
		fmt.Printf("%-14s first grant %s, start-up %s\n", name, both.text(0), both.text(1))
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

// firstGrant runs the backend's healthy scenario briefly and returns the times of its environment, in seconds. The
// verdict does not matter, so few grants are enough, but a run without any is an error.
func firstGrant(t *testing.T, p cluster.Provider, backend string) (grant, up float64) {
	t.Helper()
	out := t.TempDir()
	run := exec.Command(os.Getenv("LOCKQUAKE_BIN"), "run", backend+"-healthy", "--provider", p.Name(), "--set", "run.for=2s", "--out", out)
	said, _ := run.CombinedOutput()
	dirs, err := filepath.Glob(filepath.Join(out, "*", "[0-9]*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%s left no run directory: %v\n%s", backend, err, said)
	}
	env, err := results.ReadEnv(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	first, ok := env.Timings[results.TimeFirstGrant]
	if !ok {
		t.Fatalf("%s had no grant\n%s", backend, said)
	}
	return float64(first) / 1000, float64(env.Timings[results.TimeUp]) / 1000
}
