package engine

import (
	"os"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/scenarios"
)

// TestServerCores: one thread fills one core, and a limit may be lower.
func TestServerCores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		oneThread   bool
		limit, want float64
	}{{false, 0, 0}, {false, 0.5, 0.5}, {false, 2, 2}, {true, 0, 1}, {true, 0.2, 0.2}, {true, 2, 1}} {
		p := &plan.Plan{Backend: listed.Backend{Maker: topology.Maker{OneThread: c.oneThread}}}
		p.Scenario.Backend.Limits = scenarios.Limits{CPUs: c.limit}
		if got := serverCores(p); got != c.want {
			t.Errorf("one thread %t, limit %g: %g cores, want %g", c.oneThread, c.limit, got, c.want)
		}
	}
}

// TestUsedTicks adds up all times except those in which nothing ran; guests' time is in the user time.
func TestUsedTicks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"cpu  1 20 300 5000 7000 4 50 600 1 20\ncpu0 9 9 9 9 9 9 9 9 9 9\n": 975,
		"cpu 1 2 3 4": 6,
		"":            0,
	} {
		if got := usedTicks(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestTheMachinesProcessorTime is in nanoseconds; the kernel counts in hundredths of a second.
func TestTheMachinesProcessorTime(t *testing.T) {
	t.Parallel()
	now := func() int64 {
		b, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Skip(err)
		}
		return int64(time.Duration(usedTicks(string(b))) * 10 * time.Millisecond)
	}
	before, got, after := now(), machineCPU(), now()
	if got < before || got > after {
		t.Errorf("%d ns, want %d to %d", got, before, after)
	}
}
