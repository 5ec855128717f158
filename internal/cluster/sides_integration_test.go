//go:build integration

package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/all"
)

// another starts an agent with another clock, as on another host, and assigns the node to it. env is added to the
// agent's environment.
func another(t *testing.T, n *Node, env ...string) {
	t.Helper()
	second, _ := agenttest.OtherClock(t, slices.Concat([]string{"env"}, env, []string{testBinary(t), "agent"})...)
	d := n.driver.(*localNode)
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := second.Own(t.Context(), d.child.process.PID, false)
	if err != nil {
		t.Fatal(err)
	}
	d.sig = throughAgent{agent: second, process: p, without: direct{process: p}}
}

// TestLinkFaultsBetweenAgents injects every link fault between nodes of two agents, and checks that the heal removes
// it.
func TestLinkFaultsBetweenAgents(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	c, one, two, control := opened(t, p, "ttwoagent")
	another(t, two)
	client := c.Node("client-1")
	scope := chaos.Scope{On: []chaos.Node{one}, Peers: []chaos.Node{two, client}, LinkFaults: &chaos.LinkFaults{}}
	for name, params := range shapingFaults {
		for _, more := range []string{"", ", direction: out", ", direction: in"} {
			if params := strings.TrimSuffix(params, "}") + more + "}"; shapeable(t, p, name) {
				healed(t, name, injected(t, name, params, scope))
			}
		}
	}
	healed(t, "delay with jitter", injected(t, "delay", "{by: 100ms, jitter: 40ms}", scope))
	for _, params := range []string{"{}", "{direction: out}", "{direction: in}", "{how: reject}", "{peer_port: main}"} {
		scope := scope
		if strings.Contains(params, "port") {
			scope.Peers = scope.Peers[:1]
		}
		healed(t, "partition", injected(t, "partition", params, scope))
	}
	late := injected(t, "hold-back", "{to: x, peer_port: main}", chaos.Scope{On: []chaos.Node{client}, Peers: []chaos.Node{two}, LinkFaults: &chaos.LinkFaults{}})
	if answer := control.ask("try " + two.Address("main")); strings.HasPrefix(answer, "start") {
		t.Errorf("a client whose packets are held back gets %q", answer)
	}
	healed(t, "the hold-back", late)

	// A peer that ends meanwhile is missing.
	if _, err := two.Signals.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen, err := one.Links.MeasureLinks(t.Context(), scope.Peers, measuring(2))
	if err != nil || !seen[0].Missing || seen[1].Out.Arrived != 1 || seen[1].Out.TwoClocks {
		t.Errorf("measured without a peer: %+v, %v", seen, err)
	}
}

// TestOneDeafAgentOfTwo sabotages the agent of one end: it claims to filter and shape, and does not.
func TestOneDeafAgentOfTwo(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, one, two, _ := opened(t, p, "ttwodeaf")
	another(t, two, deaf)
	scope := chaos.Scope{On: []chaos.Node{one}, Peers: []chaos.Node{two}, LinkFaults: &chaos.LinkFaults{}}
	for name, params := range map[string]string{"delay": shapingFaults["delay"], "loss": shapingFaults["loss"], "hold-back": "{to: x}"} {
		heal, r, err := inject(t, name, params, scope)
		t.Logf("%s: %s, %s, %v", name, r.Status, r.Evidence, err)
		if r.Status != history.NotInstalled {
			t.Errorf("%s of which one end does nothing is %s: %s", name, r.Status, r.Evidence)
		}
		if _, err := heal(context.Background()); err != nil {
			t.Logf("the heal of %s: %v", name, err)
		}
	}
}
