//go:build bench

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/perf/benchmath"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// recordingScenario is 50 users, each on a lock of its own, as fast as they can.
const recordingScenario = `
name: recording-cost
claim: What recording costs, on locks that nobody else wants.
backend: {use: redis, lock: set-px-lua, ttl: 10s}
workload: {use: acquire-release, clients: 1, users: 50, own_locks: true}
run: {for: 3s, settle: 100ms, seed: 1}
`

// TestRecordingCost prints the throughput without recording over the throughput with it, pair by pair in turn, and the
// same for two runs without. LOCKQUAKE_PAIRS sets the number of pairs, LOCKQUAKE_PROVIDER the provider.
func TestRecordingCost(t *testing.T) {
	pairs := 30
	if s := os.Getenv("LOCKQUAKE_PAIRS"); s != "" {
		pairs, _ = strconv.Atoi(s)
	}
	want := os.Getenv("LOCKQUAKE_PROVIDER")
	if want == "" {
		want = "local"
	}
	provider, reason, err := chooseProvider(context.Background(), want)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("provider %s (%s), %d pairs, load %s\n", provider.Name(), reason, pairs, readFirstLine("/proc/loadavg"))
	var cost, same []float64
	for i := range pairs {
		// Each of the three takes each place in turn, so that neither the order nor a drift of the machine's speed favours
		// one of them.
		var rate [3]float64 // recorded, bare, bare again
		for k := range rate {
			arm := (i + k) % len(rate)
			rate[arm] = throughput(t, provider, arm != 0)
		}
		cost, same = append(cost, rate[1]/rate[0]), append(same, rate[1]/rate[2])
		fmt.Printf("pair %2d: recorded %8.0f/s, bare %8.0f/s, bare again %8.0f/s, ratio %.4f, A/A %.4f\n", i+1, rate[0], rate[1], rate[2], cost[i], same[i])
	}
	for _, row := range []struct {
		name   string
		ratios []float64
	}{{"bare / recorded", cost}, {"A/A", same}} {
		s := benchmath.AssumeNormal.Summary(benchmath.NewSample(row.ratios, &benchmath.DefaultThresholds), 0.95)
		fmt.Printf("%s: mean %.4f, 95 %% interval %.4f to %.4f, n %d\n", row.name, s.Center, s.Lo, s.Hi, len(row.ratios))
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

// throughput runs the scenario once and returns the lock cycles per second.
func throughput(t *testing.T, p cluster.Provider, bare bool) float64 {
	t.Helper()
	before := wire.CPU()
	sc, err := scenarios.Parse([]byte(recordingScenario), "recording-cost")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := engine.Run(context.Background(), engine.Options{
		Scenario: sc, Provider: p, Catalog: catalog(), Out: t.TempDir(), Version: "bench", Started: time.Now(), NoRecord: bare,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := results.ReadEnv(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(env.Unknown) > 0 {
		t.Fatalf("the run came to nothing: %v", env.Unknown)
	}
	var cycles, cpu int64
	for _, c := range env.Clients {
		cycles += c.Cycles
		cpu += c.CPU
	}
	t.Logf("bare %t: CPU per cycle of the clients %.1f us, of the harness %.1f us", bare, float64(cpu)/1e3/float64(cycles), float64(wire.CPU()-before)/1e3/float64(cycles))
	return float64(cycles) / time.Duration(env.End-env.Start).Seconds()
}

func readFirstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[:len(b)-1])
}
