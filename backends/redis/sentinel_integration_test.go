//go:build integration

package redis

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/listed"
	topologies "github.com/lockquake/lockquake/backends/redis/servers"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/lock"
)

// startReplicated starts a topology whose servers have replicas, and are replaced after an absence of a second.
func startReplicated(t *testing.T, b listed.Backend, run string) servers.Running {
	t.Helper()
	return servers.Start(t, servers.Options{Backend: b, Lock: "set-px-lua", TTL: time.Second, Run: run, Decode: func(into any) error {
		return awayFor(into, time.Second, time.Second)
	}})
}

// calmly starts one that all tests share, and in which no failover happens.
func calmly(t *testing.T, b listed.Backend) servers.Running {
	t.Helper()
	return servers.Shared(t, servers.Options{Backend: b, Lock: "set-px-lua", TTL: time.Second, Run: "calm" + b.Name[:6], Decode: calm})
}

// calm lets servers stall for a while, as on a busy machine, without being replaced.
func calm(into any) error { return awayFor(into, 5*time.Second, 2*time.Second) }

// awayFor sets how long a server may be absent before it is replaced.
func awayFor(into any, sentinel, cluster time.Duration) error {
	switch p := into.(type) {
	case *topologies.SentinelParams:
		p.DownAfter = sentinel
	case *topologies.ClusterParams:
		p.NodeTimeout = cluster
	}
	return nil
}

// asker asks nodes for facts, and fails the test if there is no answer.
type asker struct {
	t       *testing.T
	service topology.Service
}

func (a asker) ask(node, fact string) string {
	a.t.Helper()
	return servers.Ask(a.t, a.service, node, fact)
}

// is checks a fact.
func (a asker) is(node, fact, want string) {
	a.t.Helper()
	if got := a.ask(node, fact); got != want {
		a.t.Errorf("%s of %s is %q, not %q", fact, node, got, want)
	}
}

// await returns when the fact has the wanted value.
func (a asker) await(node, fact, want string) {
	a.t.Helper()
	wait.Until(a.t, time.Minute, fact+" of "+node+" is "+want, func() bool {
		got, err := a.service.Ask(a.t.Context(), node, fact)
		return err == nil && got == want
	})
}

// catchesUp returns when a replica has applied everything that its primary has written so far. Offsets always grow,
// by pings alone.
func (a asker) catchesUp(replica, primary string) {
	a.t.Helper()
	offset := func(node string) int {
		n, err := strconv.Atoi(a.ask(node, "offset"))
		if err != nil {
			a.t.Fatalf("offset of %s: %v", node, err)
		}
		return n
	}
	want := offset(primary)
	wait.Until(a.t, time.Minute, replica+" reaches the offset of "+primary, func() bool { return offset(replica) >= want })
	if want == 0 {
		a.t.Errorf("%s has written nothing", primary)
	}
	if lag, err := strconv.Atoi(a.ask(primary, chaos.FactLag)); err != nil || lag > want {
		a.t.Errorf("replication lag of %s, which has written %d bytes: %d, %v", primary, want, lag, err)
	}
}

// grant acquires lock a for a new user.
func grant(t *testing.T, r servers.Running, name string) (lock.Locker, lock.Grant) {
	t.Helper()
	u := userOn(t, r, lockOf(t, Sentinel(), "set-px-lua"))
	g, err := u.Acquire(t.Context(), lock.Request{Lock: name, TTL: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return u, g
}

// TestSentinelFacts asks real nodes for every fact.
func TestSentinelFacts(t *testing.T) {
	r := calmly(t, Sentinel())
	servers.CountsRequests(t, r, lockOf(t, Sentinel(), "set-px-lua"))
	servers.Stored(t, r, lockOf(t, Sentinel(), "set-px-lua"))
	a := asker{t: t, service: r.Service}
	u, g := grant(t, r, "a")
	a.is("redis-1", "holder:a", g.ID)
	for _, replica := range []string{"redis-2", "redis-3"} {
		a.await(replica, "holder:a", g.ID)
		a.is(replica, "role", "slave")
		a.is(replica, "master", "redis-1")
		a.is(replica, "link", "up")
		a.is(replica, "replicas", "0")
		a.is(replica, "takes-writes:a", "READONLY")
		a.catchesUp(replica, "redis-1")
	}
	a.is("redis-1", "role", "master")
	a.is("redis-1", "master", "redis-1")
	a.is("redis-1", "link", "none")
	a.is("redis-1", "takes-writes:a", "true")
	a.is("redis-1", "holder:a", g.ID) // asking whether it takes writes did not affect the lock
	a.await("redis-1", "replicas", "2")
	for _, watch := range []string{"sentinel-1", "sentinel-2", "sentinel-3"} {
		for fact, want := range map[string]string{
			"serves": "true", "role": "sentinel", "master": "redis-1", "quorum": "true", "flags": "master", "replicas": "2", "tilt": "false", "epoch": "0",
		} {
			a.is(watch, fact, want)
		}
		servers.Clock(t, r.Service, watch)
		if v := a.ask(watch, "run-id"); len(v) != 40 {
			t.Errorf("run-id of %s: %q", watch, v)
		}
	}
	servers.Clock(t, r.Service, "redis-2")
	for node, fact := range map[string]string{"sentinel-1": "weather", "redis-1": "quorum", "redis-9": "role"} {
		if v, err := r.Service.Ask(t.Context(), node, fact); err == nil {
			t.Errorf("%s of %s was answered with %q", fact, node, v)
		}
	}
	if err := u.Release(t.Context(), g); err != nil {
		t.Errorf("release: %v", err)
	}
	a.await("redis-3", "holder:a", "none")
	d := r.Service.Describe(t.Context())
	for key, want := range map[string]string{"redis.version": ".", "sentinel.version": ".", "sentinel.down-after": "5s", "sentinel.pace": "ping-period 100ms"} {
		if !strings.Contains(d[key], want) {
			t.Errorf("%s: %q", key, d[key])
		}
	}
}

// TestSentinelConformance runs the suite on every lock; clients find the primary through the Sentinels.
func TestSentinelConformance(t *testing.T) {
	r := calmly(t, Sentinel())
	conformance.RunAll(t, conformance.Options{Backend: Sentinel().Backend, Access: r.Access})
}

// TestSentinelFailover kills the primary. A replica is promoted and has the grant; users find it; the old primary
// comes back as its replica.
func TestSentinelFailover(t *testing.T) {
	r := startReplicated(t, Sentinel(), "failsent")
	a := asker{t: t, service: r.Service}
	u, g := grant(t, r, "a")
	a.await("redis-2", "holder:a", g.ID)
	a.await("redis-3", "holder:a", g.ID)

	begun := time.Now()
	if _, err := r.Cluster.Node("redis-1").Signals.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.is("redis-1", "serves", "false")
	primary := promoted(a, "sentinel-1", "redis-1")
	a.await(primary, "role", "master")
	for _, watch := range []string{"sentinel-2", "sentinel-3"} {
		a.await(watch, "master", primary)
	}
	t.Logf("%s is the primary %s after the kill", primary, time.Since(begun).Round(time.Millisecond))
	a.is(primary, "holder:a", g.ID)
	if v := a.ask("sentinel-1", "epoch"); v == "0" {
		t.Error("the epoch did not grow")
	}
	releaseAfterFailover(t, u, g)
	a.await(primary, "holder:a", "none")

	if err := r.Cluster.Node("redis-1").Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	servers.Await(t.Context(), t, r.Service)
	t.Logf("all is well %s after the start of the old primary", time.Since(begun).Round(time.Millisecond))
	a.is("redis-1", "role", "slave")
	a.is("redis-1", "master", primary)

	// A killed Sentinel finds its state in its file.
	for _, act := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := r.Cluster.Node("sentinel-2").Signals.Kill(ctx); return err },
		r.Cluster.Node("sentinel-2").Process.Start,
	} {
		if err := act(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	servers.Await(t.Context(), t, r.Service)
	a.is("sentinel-2", "master", primary)
}

// promoted waits until a node names a primary other than the old one.
func promoted(a asker, node, old string) string {
	a.t.Helper()
	var v string
	wait.Until(a.t, time.Minute, node+" names another than "+old, func() bool {
		var err error
		v, err = a.service.Ask(a.t.Context(), node, "master")
		return err == nil && v != old
	})
	return v
}

// releaseAfterFailover releases a grant that survived; the first attempts may reach the dead primary.
func releaseAfterFailover(t *testing.T, u lock.Locker, g lock.Grant) {
	t.Helper()
	var err error
	if !wait.Within(time.Minute, func() bool { err = u.Release(t.Context(), g); return err == nil }) {
		t.Errorf("the grant cannot be released at the new primary: %v", err)
	}
}
