//go:build bench

package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
)

// paced are runs with the same fault repeated on one target, and the same with a fault without effect.
const paced = `
name: NAME
claim: The same fault, again and again.
backend: {use: redis, lock: set-px-lua, ttl: 3s, timeout: 500ms, retry: {delay: 5ms, jitter: 0.5}}
workload: {use: counter, clients: 2, hold: 2ms, timeout: 2s, resource: {use: register}}
chaos:
  - {use: FAULT, on: TARGET, at: 500ms, for: LASTS, every: EVERY}
run: {for: LENGTH, seed: 1, settle: 100ms}
expect: {double_grants: ">=0", overlapping_holds: ">=0", judged: ">=1"}
`

// TestFaultPrecision prints how exactly pauses last as long as requested, and the times from schedule to effect, and
// from heal to a healthy service. Runs with the fault and with one without effect take turns. LOCKQUAKE_ROUNDS sets
// the number of turns (default 2), LOCKQUAKE_TEST_PROVIDER the provider (default docker).
func TestFaultPrecision(t *testing.T) {
	n, provider := times(t, "LOCKQUAKE_ROUNDS", 2), providerFor(t, setting("LOCKQUAKE_TEST_PROVIDER", "docker"), "the precision of faults")
	fmt.Printf("precision of faults, provider %s, redis and 2 clients; load %s\n", provider.Name(), readFirstLine("/proc/loadavg"))
	for _, c := range []struct{ fault, target, lasts, every, length string }{
		{"pause", "client-1", "200ms", "400ms", "20s"},
		{"pause", "redis-1", "200ms", "400ms", "20s"},
		{"kill", "redis-1", "300ms", "3s", "20s"},
	} {
		asked, err := time.ParseDuration(c.lasts)
		if err != nil {
			t.Fatal(err)
		}
		var with, without timings
		for i := range n {
			arms := []func(){
				func() {
					with.add(t, pacedRun(t, provider, c.fault, c.target, c.lasts, c.every, c.length), c.target, asked)
				},
				func() {
					without.add(t, pacedRun(t, provider, "noop", c.target, c.lasts, c.every, c.length), c.target, asked)
				},
			}
			if i%2 == 1 {
				slices.Reverse(arms) // neither arm always comes first
			}
			for _, arm := range arms {
				arm()
			}
		}
		fmt.Printf("\n%s on %s for %s, every %s\n", c.fault, c.target, c.lasts, c.every)
		with.print(c.fault)
		without.print("noop")
		if with.n == 0 || without.n == 0 {
			t.Errorf("%s on %s: nothing was measured", c.fault, c.target)
		}
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

// crowded are runs with as many cycles as the machine can make, under one fault from beginning to end.
const crowded = `
name: crowded
claim: As many locks as the machine can.
backend: {use: redis, lock: set-px-lua, ttl: 10s}
workload: {use: spread, clients: 4, users: 50, locks: 200}
chaos:
  - FAULT
run: {for: 8s, seed: 1}
expect: {double_grants: ">=0", judged: ">=1"}
`

// TestQueueCost prints what the agent's queue costs a scenario. It compares the cycles per second of 200 users, in
// turns, with the queue and without it, the latter twice (A/A). The queue delays every packet between clients and
// server by 1 ms. LOCKQUAKE_ROUNDS sets the number of turns (default 5).
func TestQueueCost(t *testing.T) {
	n, provider := times(t, "LOCKQUAKE_ROUNDS", 5), providerFor(t, setting("LOCKQUAKE_TEST_PROVIDER", "docker"), "what the queue costs")
	arms := []struct{ name, fault string }{
		{"nothing", "{use: noop, on: redis-1, at: 0s}"},
		{"nothing again", "{use: noop, on: redis-1, at: 0s}"},
		{"queue, 1 ms", "{use: delay, on: redis-1, to: clients, by: 1ms, engine: queue, at: 0s}"},
	}
	fmt.Printf("cycles per second of 200 users, provider %s; load %s\n", provider.Name(), readFirstLine("/proc/loadavg"))
	all := make([][]float64, len(arms))
	for range n {
		for i, arm := range arms {
			dir, said := runText(t, provider, strings.Replace(crowded, "FAULT", arm.fault, 1))
			r, err := results.Judge(dir, checkers.All())
			if err != nil {
				t.Fatal(err)
			}
			v := r.Measures["throughput_per_s"]
			if v == nil || len(r.Faults) != 1 || r.Faults[0].Receipt.Status != history.Installed {
				t.Fatalf("%s: nothing was measured, or the fault did not bite\n%s", arm.name, said)
			}
			all[i] = append(all[i], *v)
		}
	}
	for i, arm := range arms {
		share := make([]float64, n)
		for k, v := range all[i] {
			share[k] = v / all[0][k]
		}
		s, v := slices.Sorted(slices.Values(share)), slices.Sorted(slices.Values(all[i]))
		fmt.Printf("  %-14s n %d  median %8.0f a second (%.0f to %.0f); of the first in its round %.2f (%.2f to %.2f)\n",
			arm.name, n, v[len(v)/2], v[0], v[len(v)-1], s[len(s)/2], s[0], s[len(s)-1])
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

func pacedRun(t *testing.T, provider cluster.Provider, fault, target, lasts, every, length string) string {
	t.Helper()
	dir, _ := runText(t, provider, strings.NewReplacer("NAME", fault, "FAULT", fault, "TARGET", target, "LASTS", lasts, "EVERY", every, "LENGTH", length).Replace(paced))
	return dir
}

// timings are the results of the runs of one arm, in ms.
type timings struct {
	n                                     int // injections that acted and were healed
	off, seen, late, bite, healed, grants []float64
}

// add adds the timings of a run. A pause lasts from when the agent sees the last thread stopped until it sees none
// stopped.
func (x *timings) add(t *testing.T, dir, target string, asked time.Duration) {
	t.Helper()
	faults, err := results.ReadFaults(dir)
	if err != nil {
		t.Fatal(err)
	}
	stalls, grants := watched(t, dir, target)
	for _, f := range faults {
		if f.Receipt.Status != history.Installed || f.Healed == nil || f.Healed.Status != history.Installed {
			continue
		}
		x.n++
		if f.Name != "kill" { // has no end of its own: its length depends on the start
			x.off = append(x.off, inMS(f.Healed.Time-f.Receipt.Time-int64(asked)))
		}
		x.late = append(x.late, inMS(f.Start-f.Planned))
		x.bite = append(x.bite, inMS(f.Receipt.Time-f.Planned))
		x.healed = append(x.healed, inMS(f.End-f.Undo))
		for _, s := range stalls { // the target reports the gap when it resumes
			if s.Time >= f.Undo && s.Time < f.Undo+int64(asked) {
				x.seen = append(x.seen, inMS(s.Value-int64(asked)))
				break
			}
		}
		if i, _ := slices.BinarySearch(grants, f.Undo); i < len(grants) {
			x.grants = append(x.grants, inMS(grants[i]-f.Undo))
		}
	}
}

func inMS(ns int64) float64 { return float64(ns) / 1e6 }

// watched returns the gaps that a process noticed in its own execution, and the times of grants.
func watched(t *testing.T, dir, process string) (stalls []history.Event, grants []int64) {
	t.Helper()
	m, err := history.OpenAll(filepath.Join(dir, results.DirHistory))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	for {
		var e history.Event
		p, err := m.Next(&e)
		if errors.Is(err, io.EOF) {
			return stalls, grants
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Kind == history.Stall && p.Process == process:
			stalls = append(stalls, e)
		case e.Kind == history.Acquire && e.Phase == history.Ok:
			grants = append(grants, e.Time)
		}
	}
}

func (x *timings) print(arm string) {
	fmt.Printf("  %-6s n %d\n", arm, x.n)
	for _, l := range []struct {
		what string
		of   []float64
	}{
		{"stop to continue, as the agent saw it, less what was asked", x.off},
		{"the gap that the target saw, less what was asked", x.seen},
		{"from the schedule to the beginning of the injection", x.late},
		{"from the schedule to the bite", x.bite},
		{"from the beginning of the heal to its receipt", x.healed},
		{"from the beginning of the heal to the next grant", x.grants},
	} {
		if len(l.of) == 0 {
			continue
		}
		s := slices.Sorted(slices.Values(l.of))
		at := func(q float64) float64 { return s[int(q*float64(len(s)-1)+0.5)] }
		near := 0
		for _, v := range s {
			if v >= -5 && v <= 5 {
				near++
			}
		}
		fmt.Printf("    %-60s n %4d  p50 %8.2f  p90 %8.2f  p99 %8.2f  max %8.2f ms; within 5 ms: %d of %d\n", l.what, len(s), at(0.5), at(0.9), at(0.99), s[len(s)-1], near, len(s))
	}
}
