//go:build integration

package etcd

import (
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/lock"
)

func start(t *testing.T, run string) conformance.Running {
	t.Helper()
	return conformance.Start(t, conformance.StartOptions{Backend: Backend(), Lock: "mutex", TTL: 2 * time.Second, Run: run})
}

// TestConformance puts the mutex to the suite, on a real cluster of three.
func TestConformance(t *testing.T) {
	r := start(t, "confetcd")
	t.Run("suite", func(t *testing.T) { conformance.Run(t, conformance.Options{Backend: Backend(), Access: r.Access}) })
}

// TestFacts asks the members of a real cluster for every fact.
func TestFacts(t *testing.T) {
	r := start(t, "factsetcd")
	ctx := t.Context()
	ask := func(node, fact string) string {
		t.Helper()
		v, err := r.Service.Ask(ctx, node, fact)
		if err != nil {
			t.Fatalf("%s of %s: %v", fact, node, err)
		}
		return v
	}
	leaders := 0
	for _, n := range r.Cluster.Nodes {
		if ask(n.Name(), "role") == "leader" {
			leaders++
			if v := ask("etcd-1", "leader"); v != n.Name() {
				t.Errorf("etcd-1 takes %s for the leader, which is %s", v, n.Name())
			}
		}
		if ask(n.Name(), "serves") != "true" || ask(n.Name(), "answers") != "true" {
			t.Errorf("%s does not serve", n.Name())
		}
		if at, err := time.Parse(time.RFC3339, ask(n.Name(), "clock")); err != nil || time.Since(at).Abs() > 2*time.Second {
			t.Errorf("clock of %s: %v, %v", n.Name(), at, err)
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}

	conn, err := dial(ctx, r.Access)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	u, err := conn.Locker(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if v := ask("etcd-2", "holder:a"); v != "none" {
		t.Errorf("holder of a free lock: %s", v)
	}
	g, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if v := ask("etcd-2", "holder:a"); v != g.ID {
		t.Errorf("holder %s, grant %s", v, g.ID)
	}
	d := r.Service.Describe(ctx)
	if d["etcd.ttl-granted"] != "2s" || !strings.HasPrefix(d["etcd.version"], "3.") {
		t.Errorf("description: %v", d)
	}
}
