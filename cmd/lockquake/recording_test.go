//go:build bench

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/perf/benchmath"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// recordingScenario is 50 users, each on a lock of its own, as fast as they can.
const recordingScenario = `
name: recording-cost
claim: What recording costs, on locks that nobody else wants.
backend: {use: redis, lock: set-px-lua, ttl: 10s}
workload: {use: acquire-release, clients: 1, users: 50, own_locks: true}
run: {for: 30s, settle: 100ms, seed: 1}
`

const (
	// slice is how long one arm runs before the next has its turn: short against the time in which a shared machine
	// changes its speed, long against the time that a stop and a start take.
	slice = 200 * time.Millisecond
	// drain is how long nobody runs between two slices, so that the supervisor reads what the last arm has written at that
	// arm's expense. It is more than the 8 ms for which a busy stream may be left to fill.
	drain = 15 * time.Millisecond
)

// TestRecordingCost prints the throughput without recording over the throughput with it, and the same for two arms without.
// A pair is three runs side by side, recorded, bare and bare again, of which only one is let run at any moment: each has a
// slice in turn, and its lock cycles are counted against the time that it ran. LOCKQUAKE_PAIRS sets the number of pairs.
// What the kernel writes back to disk later is not seen.
func TestRecordingCost(t *testing.T) {
	pairs := times(t, "LOCKQUAKE_PAIRS", 12)
	provider, reason, err := chooseProvider(context.Background(), "local")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("provider %s (%s), %d pairs, load %s\n", provider.Name(), reason, pairs, readFirstLine("/proc/loadavg"))
	var cost, same []float64
	for i := range pairs {
		// Each of the three takes each place in turn.
		var arms [3]*arm
		for k := range arms {
			n := (i + k) % len(arms)
			arms[n] = startArm(t, provider, n != 0)
		}
		takeTurns(t, arms[:])
		recorded, bare, again := arms[0].rate(t), arms[1].rate(t), arms[2].rate(t)
		cost, same = append(cost, math.Log(math.Sqrt(bare*again)/recorded)), append(same, math.Log(bare/again))
		fmt.Printf("pair %2d: recorded %8.0f/s, bare %8.0f/s, bare again %8.0f/s, bare / recorded %.4f, A/A %.4f\n",
			i+1, recorded, bare, again, math.Exp(cost[i]), math.Exp(same[i]))
	}
	// The mean is that of the logarithms: a ratio and its inverse weigh the same. The plain mean of ratios of two noisy
	// rates lies above 1 even where nothing differs.
	for _, row := range []struct {
		name string
		logs []float64
	}{{"bare / recorded", cost}, {"A/A", same}} {
		s := benchmath.AssumeNormal.Summary(benchmath.NewSample(row.logs, &benchmath.DefaultThresholds), 0.95)
		fmt.Printf("%s: geometric mean %.4f, 95 %% interval %.4f to %.4f, n %d\n", row.name, math.Exp(s.Center), math.Exp(s.Lo), math.Exp(s.Hi), len(row.logs))
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

// arm is one of the runs that take turns.
type arm struct {
	nodes []*cluster.Node // the server, then the client
	ran   [][2]int64      // ns: from and until when it was let run
	dir   string
	err   error
	done  chan struct{}
}

// tapped is a provider that shows the nodes which it makes.
type tapped struct {
	cluster.Provider
	nodes chan []*cluster.Node
}

func (p tapped) Open(ctx context.Context, r cluster.Request) (*cluster.Cluster, error) {
	c, err := p.Provider.Open(ctx, r)
	if err == nil {
		p.nodes <- slices.Clone(c.Nodes)
	}
	return c, err
}

// startArm starts a run and stops its nodes once its load has begun.
func startArm(t *testing.T, p cluster.Provider, bare bool) *arm {
	t.Helper()
	sc, err := scenarios.Parse([]byte(recordingScenario), "recording-cost")
	if err != nil {
		t.Fatal(err)
	}
	a := &arm{done: make(chan struct{})}
	tap := tapped{Provider: p, nodes: make(chan []*cluster.Node, 1)}
	loading := make(chan struct{})
	var once sync.Once
	out := t.TempDir()
	from := clock.Now()
	go func() {
		defer close(a.done)
		a.dir, a.err = engine.Run(context.Background(), engine.Options{
			Scenario: sc, Provider: tap, Catalog: catalog(), Out: out, Version: "bench", Started: time.Now(), NoRecord: bare,
			Log: slog.New(slog.DiscardHandler),
			Progress: func(p engine.Progress) {
				if p.Grants > 0 || p.Elapsed > slice {
					once.Do(func() { close(loading) })
				}
			},
		})
	}()
	select {
	case <-loading:
	case <-a.done:
		t.Fatalf("a run ended before its load: %v", a.err)
	}
	a.nodes = <-tap.nodes
	a.halt(t, from)
	return a
}

// halt stops the arm, which has run since from.
func (a *arm) halt(t *testing.T, from int64) {
	t.Helper()
	until := clock.Now()
	for _, n := range slices.Backward(a.nodes) { // the client first: it must not wait for a server that stands still
		a.mustAct(t, n.Pause)
	}
	a.ran = append(a.ran, [2]int64{from, until})
}

// mustAct stops or continues a node. One that ends at that moment is no error: the run is being torn down.
func (a *arm) mustAct(t *testing.T, act func(context.Context) (chaos.ProcessState, error)) {
	t.Helper()
	if _, err := act(context.Background()); err != nil && !errors.Is(err, proc.ErrNoProcess) {
		t.Fatal(err)
	}
}

// over tells whether the run has come to its end.
func (a *arm) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// takeTurns lets each arm run for a slice in turn until all are over.
func takeTurns(t *testing.T, arms []*arm) {
	t.Helper()
	for running := true; running; {
		running = false
		for _, a := range arms {
			if a.over() {
				continue
			}
			running = true
			for _, n := range a.nodes {
				a.mustAct(t, n.Resume)
			}
			from := clock.Now()
			time.Sleep(slice)
			a.halt(t, from)
			time.Sleep(drain)
		}
	}
}

// rate returns the lock cycles per second of the time in which the arm ran.
func (a *arm) rate(t *testing.T) float64 {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	env, err := results.ReadEnv(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(env.Unknown) > 0 {
		t.Fatalf("the run came to nothing: %v", env.Unknown)
	}
	var cycles, ran int64
	for _, c := range env.Clients {
		cycles += c.Cycles
	}
	for _, r := range a.ran {
		ran += max(0, min(r[1], env.End)-max(r[0], env.Start))
	}
	t.Logf("%d cycles in %v", cycles, time.Duration(ran))
	return float64(cycles) / time.Duration(ran).Seconds()
}

func readFirstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[:len(b)-1])
}
