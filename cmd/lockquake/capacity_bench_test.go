//go:build bench

package main

import (
	"io"
	"math"
	"path/filepath"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results/capacity"
)

// TestCapacityFindsKnownFigures sweeps a lock of known cost. The figures must be within 5 % of it each time. It
// measures time, so it needs an idle machine.
func TestCapacityFindsKnownFigures(t *testing.T) {
	const tries, allowed = 5, 0.05
	for _, c := range []struct {
		name string
		args []string
		want float64
		find func(capacity.Curve) float64
	}{
		{
			"one server that takes 5 ms serves 200 cycles a second",
			[]string{"--set", "backend.serial=5ms", "--users", "1,2..16", "--repeat", "1"},
			200,
			func(c capacity.Curve) float64 { return c.Peak().Cycles.Mid },
		},
		{
			"a handoff takes 20 ms",
			[]string{"--set", "backend.handoff=20ms", "--users", "8", "--repeat", "1"},
			20,
			func(c capacity.Curve) float64 { return c.Closed[0].Handoff.Mid },
		},
		{
			"the coherency term is 0.002",
			[]string{"--set", "backend={use: memory, lock: metered, service: 20ms, contention: 0.05, coherency: 0.002}", "--locks", "own", "--users", "1,2..64", "--repeat", "1"},
			0.002,
			func(c capacity.Curve) float64 {
				if c.Fit == nil {
					t.Log(c.NoFit)
					return math.NaN()
				}
				return c.Fit.Kappa
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range tries {
				out := t.TempDir()
				args := append([]string{"capacity", "--backend", "memory", "--lock", "metered", "--for", "3s", "--warmup", "500ms", "--out", out}, c.args...)
				if code := execute(args, cli.Streams{Out: io.Discard, Err: io.Discard}); code != 0 {
					t.Fatalf("exit code %d", code)
				}
				files, err := filepath.Glob(filepath.Join(out, "capacity-*", capacity.File))
				if err != nil || len(files) != 1 {
					t.Fatal(files, err)
				}
				s, err := capacity.Read(files[0])
				if err != nil {
					t.Fatal(err)
				}
				got := c.find(capacity.Analyse(s).Curves[0])
				t.Logf("%d of %d: %.5g, known: %g (%+.1f %%)", i+1, tries, got, c.want, 100*(got/c.want-1))
				if !(math.Abs(got/c.want-1) <= allowed) {
					t.Errorf("try %d found %g, want %g within %g %%", i+1, got, c.want, 100*allowed)
				}
			}
		})
	}
}
