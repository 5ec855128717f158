//go:build integration

package cluster

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// shapesBehave tests shaped links with a provider that has networks of its own.
func shapesBehave(t *testing.T, p Provider, run string) {
	if err := p.Offers(links.CanShape, node.Server); err != nil {
		t.Fatal(err)
	}
	c, one, two, control := opened(t, p, run)
	client := c.Node("client-1")
	all := func(n ...chaos.Node) []chaos.Node { return n }
	dial := func(n *Node) (string, time.Duration) {
		begin := time.Now()
		answer := control.ask("dial " + n.Address("main"))
		return answer, time.Since(begin)
	}
	late := func(n *Node, least time.Duration, when string) {
		t.Helper()
		if answer, took := dial(n); !strings.HasPrefix(answer, "start") || took < least {
			t.Errorf("%s: the client gets %q from %s after %v, want %v at least", when, answer, n.Name(), took, least)
		}
	}
	// A stall makes one dial late, and a delay makes each.
	prompt := func(n *Node, most time.Duration, when string) {
		t.Helper()
		var answer string
		var took time.Duration
		if !wait.Within(patience, func() bool { answer, took = dial(n); return strings.HasPrefix(answer, "start") && took < most }) {
			t.Errorf("%s: the client gets %q from %s after %v, want less than %v", when, answer, n.Name(), took, most)
		}
	}
	const by, there = 150 * time.Millisecond, 300 * time.Millisecond // a connection takes a round trip, and its greeting half of one more
	var counted chaos.Counted
	delay := injected(t, "delay", "{by: 150ms}", chaos.Scope{On: all(one), Peers: all(two, client), Run: takesCounts{into: &counted}})
	late(one, there, "delayed")
	prompt(two, by, "not concerned")
	if n, err := counted.Packets(t.Context()); err != nil || n == 0 {
		t.Errorf("the client's dial was not counted: %d, %v", n, err)
	}
	loss := injected(t, "loss", "{share: 30%, direction: in}", chaos.Scope{On: all(one), Peers: all(client)})
	if _, err := one.Signals.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := one.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	serves(t, one, "start 2") // the harness is not a node
	links, err := one.Links.MeasureLinks(t.Context(), all(client), links.MeasureArgs{
		Peers: make([]links.ProbeEnd, 1), Count: 200, Every: time.Millisecond, In: true, Echo: true, Patience: 2 * time.Second,
	})
	if err != nil || len(links) != 1 {
		t.Fatalf("measured %+v, %v", links, err)
	}
	// Of 200, chance loses fewer than a tenth or more than half once in a hundred million times.
	if f := links[0].In; f.OneWay.Low < by || f.Arrived > f.Sent*9/10 || f.Arrived < f.Sent/2 {
		t.Errorf("after a restart, with a delay and a loss: %+v", f)
	}
	healed(t, "the loss", loss)
	late(one, there, "the loss healed, the delay not")
	healed(t, "the delay", delay)
	prompt(one, by, "healed")
	for _, params := range []string{
		"{by: 100ms, jitter: 50ms, correlation: 20%, port: main}", "{by: 100ms, peer_port: main, direction: in}",
	} {
		heal := injected(t, "delay", params, chaos.Scope{On: all(one), Peers: all(two)})
		prompt(one, 100*time.Millisecond, params+" concerns the other server")
		healed(t, params, heal)
	}
}

func TestShapedLinksOfContainers(t *testing.T) {
	t.Parallel()
	shapesBehave(t, engine(t, DockerOptions{Mechanisms: all.All()}), "tshapedock")
}

func TestShapedLinksInNamespaces(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	shapesBehave(t, p, "tshapens")
}

// inGuest reports whether these are the tests of make test-netem, in its guest: netem must be available, and the guest
// sometimes stalls for tens of milliseconds.
var inGuest = os.Getenv("LOCKQUAKE_TEST_NETEM") == "required"

func shapingDelay() string {
	if inGuest {
		return "150ms"
	}
	return "50ms"
}

// shapingFaults are the faults that shape links, with parameters.
var shapingFaults = map[string]string{
	"delay": "{by: " + shapingDelay() + "}", "loss": "{share: 30%}", "duplicate": "{share: 30%}", "reorder": "{share: 25%, by: 20ms}", "corrupt": "{share: 30%}",
	"rate": "{limit: 1mbit}",
}

// shapeable reports whether a provider offers what a fault needs. A provider without the kernel's netem must say so.
func shapeable(t *testing.T, p Provider, name string) bool {
	t.Helper()
	k, _ := chaos.Lookup(faults.Kinds(), name)
	for _, c := range k.Needs {
		if err := p.Offers(c, node.Server); err != nil {
			if c != links.CanNetem || inGuest {
				t.Errorf("%s: %v", name, err)
			}
			t.Logf("%s is not tested here (make test-netem does): %v", name, err)
			return false
		}
	}
	return true
}

// TestEveryFaultThatShapesLinks injects each alone, and checks that the heal removes it.
func TestEveryFaultThatShapesLinks(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, one, two, _ := opened(t, p, "tshapeall")
	scope := chaos.Scope{On: []chaos.Node{one}, Peers: []chaos.Node{two}, LinkFaults: &chaos.LinkFaults{}}
	for name, params := range shapingFaults {
		if shapeable(t, p, name) {
			healed(t, name, injected(t, name, params, scope))
		}
	}
	// A whole stack of them; the first is removed first.
	var heals []chaos.Heal
	for _, name := range []string{"rate", "delay", "loss"} {
		heals = append(heals, injected(t, name, shapingFaults[name], scope))
	}
	for _, heal := range heals {
		healed(t, "one of three", heal)
	}
}

// TestAgentThatShapesNothing sabotages the agent: it claims to shape, and does not.
func TestAgentThatShapesNothing(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p := deafProvider(t)
	c, one, two, _ := opened(t, p, "tshapedeaf")
	for name, params := range shapingFaults {
		if !shapeable(t, p, name) {
			continue
		}
		heal, r, err := inject(t, name, params, chaos.Scope{On: []chaos.Node{one}, Peers: []chaos.Node{two, c.Node("client-1")}})
		t.Logf("%s: %s, %s, %v", name, r.Status, r.Evidence, err)
		if r.Status != history.NotInstalled {
			t.Errorf("%s by an agent that does nothing is %s: %s", name, r.Status, r.Evidence)
		}
		healed(t, name, heal)
	}
}
