//go:build integration

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// limited returns four nodes: two that use all the CPU time they get, and two that take 100 MiB of memory. One of each
// pair has limits.
func limited(t *testing.T, run string) Request {
	busy := func(name string, l node.Limits) node.Spec {
		return node.Spec{Name: name, Role: node.Server, Image: node.SelfProgram, Limits: l, Command: func(node.Place) []string { return []string{node.SelfProgram, "busy"} }}
	}
	eater := func(name string, l node.Limits) node.Spec {
		return node.Spec{
			Name: name, Role: node.Server, Image: node.SelfProgram, Limits: l, Ports: []node.Port{{Name: "main", Number: 7000}},
			Command: func(p node.Place) []string {
				return []string{node.SelfProgram, "eat", "100", p.Address(p.Self, "main"), p.Dir}
			},
		}
	}
	return Request{Run: run, LogDir: filepath.Join(t.TempDir(), "logs"), Specs: []node.Spec{
		busy("busy-free", node.Limits{}), busy("busy-held", node.Limits{CPUs: 0.05}),
		eater("eater-free", node.Limits{}), eater("eater-held", node.Limits{Memory: 64 << 20}),
	}}
}

// holds tests limits with a provider of real processes.
func holds(t *testing.T, p Provider, run string) {
	if err := p.Offers(CanLimit, node.Server); err != nil {
		t.Skip(err)
	}
	c, err := p.Open(t.Context(), limited(t, run))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, run)
	})
	for name, want := range map[string]string{"busy-free": "", "busy-held": "cpus 0.05 ", "eater-held": "memory 64 MiB "} {
		got := c.Describe[limitsKey(name)]
		t.Logf("%s: %s", name, got)
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s is described with %q, want %q", name, got, want)
		}
	}
	start(t, c.Node("eater-free"), c.Node("eater-held"))
	serves(t, c.Node("eater-free"), "start 1")
	select {
	case <-c.Node("eater-held").Process.Exited():
	case <-time.After(patience):
		t.Error("a node took 100 MiB of its 64 MiB and lives on")
	}
	free, held := c.Node("busy-free"), c.Node("busy-held")
	begin := time.Now()
	start(t, held, free)
	var with, without time.Duration
	wait.Until(t, patience, "both have used a processor", func() bool {
		with, without = used(t, held), used(t, free)
		return without >= time.Second && with > 0
	})
	took := time.Since(begin)
	t.Logf("CPU time used in %v: %v with the limit of a twentieth of a processor, %v without", took, with, without)
	if with > max(without/2, took/10) { // twice the limit if the other is starved
		t.Errorf("a node held to a twentieth of a processor used %v in %v, one without limits %v", with, took, without)
	}
}

func start(t *testing.T, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Process.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// used returns the CPU time of a node's process, from this machine's /proc.
func used(t *testing.T, n *Node) time.Duration {
	t.Helper()
	s, err := n.Signals.Inspect(t.Context())
	if err != nil || s.PID == 0 {
		t.Fatalf("%s has no process: %v, %v", n.Name(), s, err)
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	var ticks int64
	for _, s := range f[11:13] { // utime and stime
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // the kernel counts hundredths of a second
}

func TestLimitsOfContainers(t *testing.T) {
	needRoot(t) // the test looks at the engine's processes in this machine's /proc
	holds(t, engine(t, DockerOptions{Mechanisms: all.All()}), "tlimdock")
}

func TestLimitsOfProcesses(t *testing.T) {
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, p, "tlimlocal")
}

func TestGroupsOfADeadRunAreSwept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, err := limits.Open("tswept", dir)
	if err != nil {
		t.Skip(limits.Lacking(err))
	}
	if _, _, err := g.Node("a", node.Limits{CPUs: 0.5}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing is left to remove
		if err := limits.Sweep(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, top := range g.Tops {
		if _, err := os.Stat(top); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", top, err)
		}
	}
}
