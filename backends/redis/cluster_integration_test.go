//go:build integration

package redis

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

// The servers of a cluster: at the start the first ones are primaries, each with a replica.
const (
	clusterPrimaries = 3
	clusterServers   = 6
)

func serverName(i int) string { return "redis-" + strconv.Itoa(i+1) }

// TestClusterFacts asks real nodes for every fact.
func TestClusterFacts(t *testing.T) {
	r := calmly(t, Cluster())
	servers.CountsRequests(t, r, lockOf(t, Cluster(), "set-px-lua"))
	servers.Stored(t, r, lockOf(t, Cluster(), "set-px-lua"))
	a := asker{t: t, service: r.Service}
	u, g := grant(t, r, "a")
	primary := a.ask("redis-1", "primary:a")
	i := slices.Index([]string{"redis-1", "redis-2", "redis-3"}, primary)
	if i < 0 {
		t.Fatalf("the primary of the lock is %q", primary)
	}
	replica := serverName(clusterPrimaries + i)
	a.is(primary, "holder:a", g.ID)
	a.is(primary, "role:a", "master")
	a.await(replica, "holder:a", g.ID)
	a.is(replica, "role:a", "slave")
	a.is(replica, "link", "up")
	a.is(replica, "master", primary)
	a.catchesUp(replica, primary)
	a.is(primary, "replicas", "1")
	stranger := serverName((i + 1) % clusterPrimaries)
	a.is(stranger, "holder:a", "none")
	a.is(stranger, "role:a", "none")
	a.is(stranger, "takes-writes:a", "MOVED")
	a.is(primary, "takes-writes:a", "true")
	for n := range clusterServers {
		node, role := serverName(n), "master"
		if n >= clusterPrimaries {
			role = "slave"
		}
		for fact, want := range map[string]string{
			"serves": "true", "role": role, "flags": role, "state": "ok", "failing": "none", "primary:a": primary,
		} {
			a.is(node, fact, want)
		}
		servers.Clock(t, r.Service, node)
		if v := a.ask(node, "epoch"); v == "" || v == "0" {
			t.Errorf("epoch of %s: %q", node, v)
		}
	}
	var names []string
	for n := range 30 {
		names = append(names, "lock-"+strconv.Itoa(n))
	}
	var led []string
	for n := range clusterServers {
		own, err := r.Service.(chaos.Sharder).Leads(t.Context(), serverName(n), names)
		if err != nil || (len(own) > 0) != (n < clusterPrimaries) {
			t.Errorf("%s leads %v of the locks: %v", serverName(n), own, err)
		}
		led = append(led, own...)
	}
	slices.Sort(led)
	slices.Sort(names)
	if !slices.Equal(led, names) {
		t.Errorf("the primaries lead %v together", led)
	}
	if v, err := r.Service.Ask(t.Context(), "redis-1", "weather"); err == nil {
		t.Errorf("a fact that is not known was answered with %q", v)
	}
	if err := u.Release(t.Context(), g); err != nil {
		t.Errorf("release: %v", err)
	}
	d := r.Service.Describe(t.Context())
	for key, want := range map[string]string{"redis.version": ".", "redis.node-timeout": "2s", "client.redirects": "3"} {
		if !strings.Contains(d[key], want) {
			t.Errorf("%s: %q", key, d[key])
		}
	}
}

// TestClusterConformance runs the suite on every lock, with keys of all three primaries.
func TestClusterConformance(t *testing.T) {
	r := calmly(t, Cluster())
	conformance.RunAll(t, conformance.Options{Backend: Cluster().Backend, Access: r.Access})
}

// TestClusterFailover kills a lock's primary. Its replica is promoted and has the grant; users find it; the old
// primary comes back as its replica.
func TestClusterFailover(t *testing.T) {
	r := startReplicated(t, Cluster(), "failclus")
	a := asker{t: t, service: r.Service}
	resetter := r.Service.(topology.Resetter)
	start, err := resetter.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u, g := grant(t, r, "a")
	old := a.ask("redis-1", "primary:a")
	i := slices.Index([]string{"redis-1", "redis-2", "redis-3"}, old)
	replica, witness := serverName(clusterPrimaries+i), serverName((i+1)%clusterPrimaries)
	a.await(replica, "holder:a", g.ID)
	epoch := a.ask(witness, "epoch")

	begun := time.Now()
	if _, err := r.Cluster.Node(old).Signals.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.await(witness, "primary:a", replica)
	a.await(replica, "role", "master")
	t.Logf("%s is the primary %s after the kill", replica, time.Since(begun).Round(time.Millisecond))
	a.is(witness, "failing", old)
	a.is(replica, "holder:a", g.ID)
	a.is(old, "serves", "false")
	if v := a.ask(witness, "epoch"); v == epoch {
		t.Error("the epoch did not grow")
	}
	releaseAfterFailover(t, u, g)
	a.await(replica, "holder:a", "none")

	if err := r.Cluster.Node(old).Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	servers.Await(t.Context(), t, r.Service)
	t.Logf("all is well %s after the start of the old primary", time.Since(begun).Round(time.Millisecond))
	a.is(old, "role", "slave")
	a.is(old, "master", replica)

	if now, err := resetter.Settings(t.Context()); err != nil || maps.Equal(now, start) {
		t.Errorf("a replica was promoted, and the settings are as at the start (%v)", err)
	}
	begun = time.Now()
	evidence, err := resetter.Reset(t.Context())
	t.Logf("reset within %s: %q, %v", time.Since(begun).Round(time.Millisecond), evidence, err)
	if now, err2 := resetter.Settings(t.Context()); err != nil || err2 != nil || !maps.Equal(now, start) {
		t.Errorf("after a reset (%v) the settings are %v (%v), and were %v", err, now, err2, start)
	}
	a.is(old, "role", "master")
	a.is(replica, "role", "slave")
}
