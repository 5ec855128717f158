//go:build integration

package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/node"
)

// foreignFaults returns the link faults, each with the keys with which it works at one end. The guest of make
// test-netem shapes egress only, and has no packet filter.
func foreignFaults() map[string][]string {
	out := map[string][]string{
		"delay":     {"{by: " + shapingDelay() + ", direction: out}"},
		"loss":      {"{share: 30%, direction: out}"},
		"reorder":   {"{share: 25%, by: 20ms, direction: out}"},
		"corrupt":   {"{share: 30%, direction: out}"},
		"duplicate": {"{share: 30%, direction: out}"},
		"rate":      {"{limit: 1mbit, direction: out}"},
	}
	if inGuest {
		return out
	}
	out["partition"] = []string{"{}", "{direction: in}", "{direction: out}", "{how: reject}", "{how: reject, direction: in}", "{peer_port: main}"}
	out["delay"] = append(out["delay"], "{by: 50ms}", "{by: 50ms, direction: in, jitter: 10ms}", "{by: 50ms, peer_port: main}")
	out["loss"] = append(out["loss"], "{share: 30%}", "{share: 30%, direction: in}")
	out["reorder"] = append(out["reorder"], "{share: 25%, by: 20ms, direction: in}")
	out["corrupt"] = append(out["corrupt"], "{share: 30%, direction: in}")
	return out
}

// beforeForeign starts a run whose client uses an external server: a node of the run, which lends its address.
func beforeForeign(t *testing.T, p Provider, run string) (*Cluster, chaos.Scope) {
	t.Helper()
	c, _, two, _ := opened(t, p, run)
	theirs, err := Attach([]node.Spec{{Name: "theirs", Role: node.Server, Ports: []node.Port{{Name: "main"}}}}, []Endpoint{{Port: "main", Address: two.Address("main")}})
	if err != nil {
		t.Fatal(err)
	}
	c.Join(theirs)
	return c, chaos.Scope{On: []chaos.Node{c.Node("client-1")}, Peers: []chaos.Node{theirs[0]}, LinkFaults: &chaos.LinkFaults{}}
}

// TestEveryLinkFaultToForeignServers injects each link fault at a client's end, towards an external server, and checks
// that the heal removes it.
func TestEveryLinkFaultToForeignServers(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	c, scope := beforeForeign(t, p, "tforeign")
	for name, list := range foreignFaults() {
		for _, params := range list {
			if shapeable(t, p, name) {
				healed(t, name, injected(t, name, params, scope))
			}
		}
	}
	for name, params := range map[string]string{"rate": "{limit: 1mbit}", "duplicate": "{share: 30%}"} {
		if _, _, err := inject(t, name, params, scope); !errors.As(err, new(chaos.Unavailable)) {
			t.Errorf("%s of what a foreign server sends is not refused: %v", name, err)
		}
	}
	if inGuest {
		return
	}
	// Servers of both kinds, and two faults at once.
	scope.Peers = append(scope.Peers, c.Node("echo-1"))
	delay := injected(t, "delay", "{by: 50ms}", scope)
	cut := injected(t, "partition", "{}", scope)
	healed(t, "the delay", delay)
	healed(t, "the partition", cut)
}

// TestForeignServersSeeNoFault sabotages the agent: it claims to filter and shape, and does not.
func TestForeignServersSeeNoFault(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p := deafProvider(t)
	_, scope := beforeForeign(t, p, "tforedeaf")
	for name, list := range foreignFaults() {
		for _, params := range list {
			if !shapeable(t, p, name) {
				continue
			}
			heal, r, err := inject(t, name, params, scope)
			t.Logf("%s %s: %s, %s, %v", name, params, r.Status, r.Evidence, err)
			if r.Status != history.NotInstalled {
				t.Errorf("%s %s by an agent that does nothing is %s: %s", name, params, r.Status, r.Evidence)
			}
			healed(t, name, heal)
		}
	}
}

// TestSilentForeignServer: a fault cannot be distinguished from a server that does not answer.
func TestSilentForeignServer(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	c, scope := beforeForeign(t, p, "tforegone")
	if _, err := c.Node("echo-2").Signals.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	heal, r, err := inject(t, "partition", "{}", scope)
	if err != nil || r.Status != history.Indeterminate || !strings.Contains(r.Evidence, "nothing passed before") {
		t.Errorf("%s, %v: %s", r.Status, err, r.Evidence)
	}
	healed(t, "partition", heal)
	s, err := c.Node("client-1").Links.MeasureLinks(t.Context(), scope.Peers, links.MeasureArgs{
		Peers: make([]links.ProbeEnd, 1), Count: 3, Every: time.Millisecond, Patience: time.Second,
	})
	if err != nil || len(s) != 1 || s[0].Shake == nil || s[0].Shake.Refused != 3 {
		t.Errorf("connections to nobody: %+v, %v", s, err)
	}
}
