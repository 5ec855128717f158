package servers

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

// TestFiveParams: settings that the servers or the algorithm do not support are rejected, and the error names the
// key.
func TestFiveParams(t *testing.T) {
	for _, c := range []struct {
		nodes int
		set   func(*FiveParams)
		want  string
	}{
		{0, func(*FiveParams) {}, ""},
		{9, func(p *FiveParams) { p.NodeTimeout = time.Second }, ""},
		{3, func(p *FiveParams) { p.Restart, p.Order, p.ClockDrift = restartDelayed, access.OrderSequential, 0 }, ""},
		{4, func(*FiveParams) {}, "nodes"},
		{1, func(*FiveParams) {}, "nodes"},
		{11, func(*FiveParams) {}, "nodes"},
		{0, func(p *FiveParams) { p.Persistence = "some" }, "persistence"},
		{0, func(p *FiveParams) { p.Restart = "late" }, "restart"},
		{0, func(p *FiveParams) { p.NodeTimeout = 50 }, "node_timeout"},
		{0, func(p *FiveParams) { p.NodeTimeout = 2 * time.Second }, "node_timeout"},
		{0, func(p *FiveParams) { p.ClockDrift = 1 }, "clock_drift"},
		{0, func(p *FiveParams) { p.ClockDrift = 0.999 }, "clock_drift"},
		{0, func(p *FiveParams) { p.Order = "random" }, "order"},
		{0, func(p *FiveParams) { p.Elapsed, p.Release = access.ElapsedWall, access.ReleaseGranted }, ""},
		{0, func(p *FiveParams) { p.Elapsed = "sundial" }, "elapsed"},
		{0, func(p *FiveParams) { p.Release = "some" }, "release"},
		{0, func(p *FiveParams) { p.Retry.Tries = -1 }, "retry.tries"},
	} {
		_, err := newFive(topology.Common{TTL: time.Second, Nodes: c.nodes}, func(into any) error { c.set(into.(*FiveParams)); return nil })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error is %v; it should name %q", err, c.want)
		}
	}
}

// TestFiveSpecs: with "delayed" a server stays down for longer than any key lives.
func TestFiveSpecs(t *testing.T) {
	for restart, delay := range map[string]time.Duration{restartImmediate: 0, restartDelayed: 3*time.Second + restartMargin} {
		f, err := newFive(topology.Common{TTL: 3 * time.Second, Nodes: 3}, func(into any) error {
			into.(*FiveParams).Restart = restart
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		specs := f.Specs()
		if len(specs) != 3 || specs[2].Name != "redlock-3" || specs[2].RestartDelay != delay {
			t.Errorf("restart %s: %d nodes, the last is %s and starts again after %s", restart, len(specs), specs[len(specs)-1].Name, specs[len(specs)-1].RestartDelay)
		}
	}
}

// TestMajorityOf: the majority's value, and cases that cannot be decided.
func TestMajorityOf(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"aaabb", "a"},
		{"aaa??", "a"},
		{"aabb.", "none"},
		{".....", "none"},
		{"aab..", "none"},
		{"...??", "none"},
		{"aab.?", ""},
		{"ab.??", ""},
		{"ab..?", "none"},
		{"?????", ""},
	} {
		values, errs := make([]string, len(c.text)), make([]error, len(c.text))
		for i, letter := range c.text {
			switch values[i] = string(letter); letter {
			case '.':
				values[i] = "none"
			case '?':
				errs[i] = io.EOF
			}
		}
		got, err := majorityOf(values, errs)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("a majority of %s has %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

// TestNoServerOfFiveLeadsOrFollows, so neither is a target.
func TestNoServerOfFiveLeadsOrFollows(t *testing.T) {
	f, err := newFive(topology.Common{TTL: time.Second}, func(any) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	targets := chaos.Targets(f.Service(nil), []string{"redlock-1", "redlock-2", "redlock-3"}, "lock-0")
	if slices.Contains(targets, "leader") || slices.Contains(targets, "followers") || !slices.Contains(targets, "majority") {
		t.Errorf("the targets are %q", targets)
	}
}
