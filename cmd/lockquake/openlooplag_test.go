//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
)

// lagScenario offers arrivals to 50 users, each on a lock of its own.
const lagScenario = `
name: open-loop-lag
claim: How late a user begins who was free.
backend: {use: redis, lock: set-px-lua, ttl: 10m}
workload: {use: acquire-release, clients: 1, users: 50, own_locks: true, rate: %d}
run: {for: 6s, seed: 1}
`

// TestOpenLoopLag prints how late the users of an open loop start because of the generator. One rate needs much of a
// core, the other does not. Each is measured in turn with the client prioritised (SCHED_FIFO), so that it has a core
// to itself, and without.
func TestOpenLoopLag(t *testing.T) {
	rounds := times(t, "LOCKQUAKE_ROUNDS", 5)
	provider := providerFor(t, "local", "the open loop's lag")
	fmt.Printf("provider %s, load %s\n", provider.Name(), readFirstLine("/proc/loadavg"))
	for _, rate := range []int{10000, 500} {
		var lags [2][]float64 // ms, 99 % of a run's starts: with a core to itself, and without
		var served [2][]float64
		for range rounds {
			for i, alone := range []bool{true, false} {
				lag, offered := openLoopLag(t, provider, rate, alone)
				lags[i], served[i] = append(lags[i], lag), append(served[i], offered)
			}
		}
		for i, name := range []string{"a core to itself", "as any process"} {
			worst := slices.Max(lags[i])
			fmt.Printf("%6d starts/s, %-16s  99 %% of a run's starts within %.3f ms (median of %d runs; worst run %.3f), offered %.0f/s\n",
				rate, name, median(lags[i]).Center, rounds, worst, median(served[i]).Center)
		}
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

// openLoopLag runs the scenario. It returns the 99th percentile of the starts' lag in ms, and the offered starts per
// second.
func openLoopLag(t *testing.T, p cluster.Provider, rate int, alone bool) (lag, offered float64) {
	t.Helper()
	sc, err := scenarios.Parse(fmt.Appendf(nil, lagScenario, rate), "open-loop-lag")
	if err != nil {
		t.Fatal(err)
	}
	tap := tapped{Provider: p, nodes: make(chan []*cluster.Node, 1)}
	var once sync.Once
	dir, err := engine.Run(t.Context(), engine.Options{
		Request: engine.Request{Scenario: sc, Provider: tap, Catalog: nodes.Catalog()}, Out: t.TempDir(), Version: "bench", Started: time.Now(), Log: slog.New(slog.DiscardHandler),
		Progress: func(p engine.Progress) {
			if alone && p.Grants > 0 {
				once.Do(func() { prioritise(t, <-tap.nodes) })
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if alone && len(tap.nodes) > 0 { // the client was never prioritised
		t.Fatal("no grant was told of during the load, and the client got no priority")
	}
	r, err := results.Judge(dir, checkers.All())
	if err != nil {
		t.Fatal(err)
	}
	return measure(t, r, "generator_lag_p99_ms"), measure(t, r, "offered_per_s")
}

func measure(t *testing.T, r results.Report, name string) float64 {
	t.Helper()
	v := r.Measures[name]
	if v == nil {
		t.Fatalf("%s was not measured", name)
	}
	return *v
}

// prioritise puts the client of a run above all work of the machine without real-time priority.
func prioritise(t *testing.T, nodes []*cluster.Node) {
	i := slices.IndexFunc(nodes, func(n *cluster.Node) bool { return n.Role() == node.Client })
	state, err := nodes[i].Signals.Inspect(context.Background())
	if err != nil {
		t.Error(err)
		return
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", state.PID))
	if err != nil || len(tasks) == 0 {
		t.Errorf("threads of %d: %v", state.PID, err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if err == nil {
			err = unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 10}, 0)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // a thread may have ended
			t.Errorf("priority of thread %s: %v", task, err)
		}
	}
}
