//go:build integration

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster/testdata/testnode"
	"github.com/lockquake/lockquake/internal/node"
)

// takesCounts is a run that keeps the counter of a fault's packets.
type takesCounts struct {
	chaos.Run
	into *chaos.Counted
}

func (r takesCounts) Counts(c chaos.Counted) { *r.into = c }

// injected injects a link fault and checks that its receipt says installed.
func injected(t *testing.T, name, params string, s chaos.Scope) chaos.Heal {
	t.Helper()
	heal, r, err := inject(t, name, params, s)
	t.Logf("%s %s: %s, %s", name, params, r.Status, r.Evidence)
	if err != nil || r.Status != history.Installed {
		t.Errorf("%s %s: %s, %v", name, params, r.Status, err)
	}
	return heal
}

func inject(t *testing.T, name, params string, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	t.Helper()
	k, ok := chaos.Lookup(faults.Kinds(), name)
	if !ok {
		t.Fatalf("no fault %s", name)
	}
	f, err := k.New(func(into any) error { return yaml.UnmarshalWithOptions([]byte(params), into, yaml.Strict()) })
	if err != nil {
		t.Fatal(err)
	}
	return f.Inject(t.Context(), s)
}

func healed(t *testing.T, what string, heal chaos.Heal) {
	t.Helper()
	r, err := heal(context.Background())
	t.Logf("%s healed: %s, %s", what, r.Status, r.Evidence)
	if err != nil || r.Status != history.Installed {
		t.Errorf("the heal of %s: %s, %v", what, r.Status, err)
	}
}

// opened starts a run of two servers and a client.
func opened(t *testing.T, p Provider, run string) (c *Cluster, one, two *Node, control stream) {
	t.Helper()
	req := request(t, run)
	c, err := p.Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, run)
	})
	startAll(t, c)
	one, two = c.Node("echo-1"), c.Node("echo-2")
	for _, n := range []*Node{one, two} {
		serves(t, n, "start 1")
	}
	return c, one, two, streams(t, c, req)
}

// linksBehave tests link faults with a provider that has networks of its own.
func linksBehave(t *testing.T, p Provider, run string) {
	c, one, two, control := opened(t, p, run)
	client := c.Node("client-1")
	all := func(n ...chaos.Node) []chaos.Node { return n }
	dial := func(n *Node) string { return control.ask("dial " + n.Address("main")) }
	try := func(n *Node) string { return control.ask("try " + n.Address("main")) } // for blocked links
	cut := func(answer string) bool { return !strings.HasPrefix(answer, "start") }

	var counted chaos.Counted
	whole := injected(t, "partition", "{}", chaos.Scope{On: all(one), Peers: all(two, client), Run: takesCounts{into: &counted}})
	if answer := try(one); !cut(answer) {
		t.Errorf("a client cut off from echo-1 gets %q", answer)
	}
	if n, err := counted.Packets(t.Context()); err != nil || n == 0 {
		t.Errorf("the client's dial was not counted: %d, %v", n, err)
	}
	if answer := dial(two); cut(answer) {
		t.Errorf("a client that is not cut off from echo-2 gets %q", answer)
	}
	serves(t, one, "start 1") // the harness is not a node
	refused := injected(t, "partition", "{how: reject}", chaos.Scope{On: all(client), Peers: all(two)})
	if answer := dial(two); !strings.Contains(answer, "refused") {
		t.Errorf("a client whose packets are rejected gets %q", answer)
	}

	if _, err := one.Signals.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := one.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	serves(t, one, "start 2")
	if answer := try(one); !cut(answer) {
		t.Errorf("echo-1 came back, and a client cut off from it gets %q", answer)
	}
	if n, err := one.Links.Filtered(t.Context(), keyOf(t, one)); err != nil || n.Packets == 0 {
		t.Errorf("the rules at echo-1 after its restart have met %+v, %v", n, err)
	}
	healed(t, "the partition", whole)
	if answer := dial(one); cut(answer) {
		t.Errorf("after the heal the client gets %q from echo-1", answer)
	}
	if answer := dial(two); !cut(answer) {
		t.Errorf("after the heal of the other partition the client gets %q from echo-2", answer)
	}
	healed(t, "the rejecting partition", refused)
	if answer := dial(two); cut(answer) {
		t.Errorf("after the heal the client gets %q from echo-2", answer)
	}

	for _, params := range []string{"{direction: out}", "{direction: in}", "{direction: out, port: main}", "{peer_port: main}"} {
		heal := injected(t, "partition", params, chaos.Scope{On: all(one), Peers: all(two)})
		if answer := dial(one); cut(answer) {
			t.Errorf("%s: the client, whom it does not concern, gets %q", params, answer)
		}
		healed(t, params, heal)
	}

	late := injected(t, "hold-back", "{to: x, peer_port: main}", chaos.Scope{On: all(client), Peers: all(one)})
	if answer := try(one); !cut(answer) {
		t.Errorf("a client whose packets are held back gets %q", answer)
	}
	healed(t, "the hold-back", late)
	if answer := dial(one); cut(answer) {
		t.Errorf("after the heal the client gets %q", answer)
	}
}

// keyOf returns the key of a node's first active filter.
func keyOf(t *testing.T, n *Node) string {
	t.Helper()
	n.Orders.mu.Lock()
	defer n.Orders.mu.Unlock()
	if len(n.Orders.standing) == 0 {
		t.Fatalf("nothing stands at %s", n.Name())
	}
	return strings.TrimSuffix(n.Orders.standing[0].order.Key, "/"+n.Name())
}

func TestLinksOfContainers(t *testing.T) {
	t.Parallel()
	linksBehave(t, engine(t, DockerOptions{Mechanisms: all.All()}), "tlinkdock")
}

func TestLinksOfContainersByPublishedPorts(t *testing.T) {
	t.Parallel()
	c, one, two, _ := opened(t, engine(t, DockerOptions{Mechanisms: all.All(), published: true}), "tlinkpub")
	heal := injected(t, "partition", "{}", chaos.Scope{On: []chaos.Node{one}, Peers: []chaos.Node{two, c.Node("client-1")}})
	serves(t, one, "start 1") // through the engine's proxy, which no rule names
	healed(t, "the partition", heal)
}

func TestLinksInNamespaces(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	linksBehave(t, p, "tlinkns")
}

func TestLinksOnLoopbackAreUnavailable(t *testing.T) {
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []chaos.Capability{links.CanFilter, links.CanHold} {
		if err := p.Offers(c, node.Server); err == nil || !strings.Contains(err.Error(), "share the loopback address") {
			t.Errorf("%s: %v", c, err)
		}
	}
	_, one, two, _ := opened(t, p, "tlinkloop")
	_, r, err := inject(t, "partition", "{}", chaos.Scope{On: []chaos.Node{one}, Peers: []chaos.Node{two}})
	if err == nil || r.Status == history.Installed {
		t.Errorf("a partition of the loopback address: %s, %v", r.Status, err)
	}
	serves(t, one, "start 1")
}

// deaf is the environment of an agent that claims to filter and shape, and does not.
const deaf = testnode.Deaf + "=" + links.DoFilter + "," + links.DoFiltered

func deafProvider(t *testing.T) Provider {
	t.Helper()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	p.(*localProvider).agentEnv = []string{deaf}
	return p
}

// TestDeafAgent sabotages the agent: it claims to filter, and does not.
func TestDeafAgent(t *testing.T) {
	needRoot(t)
	t.Parallel()
	c, one, two, _ := opened(t, deafProvider(t), "tlinkdeaf")
	for name, params := range map[string]string{"partition": "{}", "hold-back": "{to: x}"} {
		heal, r, err := inject(t, name, params, chaos.Scope{On: []chaos.Node{one}, Peers: []chaos.Node{two, c.Node("client-1")}})
		t.Logf("%s: %s, %s, %v", name, r.Status, r.Evidence, err)
		if r.Status != history.NotInstalled {
			t.Errorf("%s by an agent that does nothing is %s: %s", name, r.Status, r.Evidence)
		}
		healed(t, name, heal)
	}
}

func TestPausesOfOneNodeCompose(t *testing.T) {
	t.Parallel()
	for provider, p := range map[string]Provider{"docker": engine(t, DockerOptions{Mechanisms: all.All()}), "local": loopbackProvider(t)} {
		t.Run(provider, func(t *testing.T) {
			_, one, _, _ := opened(t, p, fmt.Sprintf("tpaus%.3s", provider))
			scope := chaos.Scope{On: []chaos.Node{one}}
			first, second := injected(t, "pause", "{}", scope), injected(t, "pause", "{}", scope)
			healed(t, "the first pause", first)
			if s, err := one.Signals.Inspect(t.Context()); err != nil || !s.Stopped() {
				t.Errorf("after the first of two heals: %v, %v", s, err)
			}
			healed(t, "the second pause", second)
			serves(t, one, "start 1")
		})
	}
}

func loopbackProvider(t *testing.T) Provider {
	t.Helper()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
