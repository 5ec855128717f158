//go:build integration

package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/locks"
	"github.com/lockquake/lockquake/lock"
)

// start starts a server that all tests share.
func start(t *testing.T) servers.Running {
	t.Helper()
	return servers.Shared(t, servers.Options{Backend: Single(), Lock: "set-px-lua", TTL: time.Second, Run: "confredis"})
}

// TestConformance runs the suite on every lock except wasteful, on a real server; wasteful's comment says why.
func TestConformance(t *testing.T) {
	r := start(t)
	b := Single().Backend
	b.Locks = slices.DeleteFunc(slices.Clone(b.Locks), func(l backends.Lock) bool { return l.Name == "wasteful" })
	t.Run("suite", func(t *testing.T) {
		conformance.RunAll(t, conformance.Options{Backend: b, Access: r.Access})
	})
}

// TestHolder compares the holder's fact with a grant of each lock, whose id must be the value at the key.
func TestHolder(t *testing.T) {
	r := start(t)
	for _, l := range locks.OneClient() {
		t.Run(l.Name, func(t *testing.T) {
			u := userOn(t, r, l)
			g, err := u.Acquire(t.Context(), lock.Request{Lock: l.Name, TTL: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if v := servers.Ask(t, r.Service, "redis-1", "holder:"+l.Name); v != g.ID {
				t.Errorf("holder %s, grant %s", v, g.ID)
			}
			if err := u.Release(t.Context(), g); err != nil {
				t.Error(err)
			}
			if v := servers.Ask(t, r.Service, "redis-1", "holder:"+l.Name); v != "none" {
				t.Errorf("holder %s of a released lock", v)
			}
		})
	}
}

// lockOf returns the lock of that name.
func lockOf(t *testing.T, b listed.Backend, name string) backends.Lock {
	t.Helper()
	l, ok := b.Lock(name)
	if !ok {
		t.Fatalf("%s has no lock %s", b.Name, name)
	}
	return l
}

// userOn returns a user of a lock on a running service.
func userOn(t *testing.T, r servers.Running, l backends.Lock) lock.Locker {
	t.Helper()
	conn, err := l.Dial(t.Context(), r.Access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	u, err := conn.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestFacts asks a real server for every fact.
func TestFacts(t *testing.T) {
	r := start(t)
	ctx := t.Context()
	servers.CountsRequests(t, r, lockOf(t, Single(), "set-px-lua"))
	for _, l := range locks.OneClient() {
		servers.Stored(t, r, l)
	}
	conn, err := lockOf(t, Single(), "set-px-lua").Dial(ctx, r.Access)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	u, err := conn.Locker(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(fact string) string {
		t.Helper()
		return servers.Ask(t, r.Service, "redis-1", fact)
	}
	g, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if v := ask("holder:a"); v != g.ID {
		t.Errorf("holder %s, grant %s", v, g.ID)
	}
	if v := ask("serves"); v != "true" {
		t.Errorf("serves: %s", v)
	}
	if v := ask("role"); v != "master" {
		t.Errorf("role: %s", v)
	}
	servers.Clock(t, r.Service, "redis-1")
	before := ask("run-id")
	if _, err := r.Service.Ask(ctx, "redis-1", "weather"); err == nil {
		t.Error("a fact that is not known was answered")
	}
	if v := r.Service.Describe(ctx)["redis.version"]; v == "" || v[0] < '5' {
		t.Errorf("version: %q", v)
	}

	end(t, r, "redis-1")
	if v := ask("serves"); v != "false" {
		t.Errorf("serves after the end of the server: %s", v)
	}
	if err := r.Cluster.Node("redis-1").Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	servers.Await(ctx, t, r.Service)
	if v := ask("run-id"); v == before {
		t.Error("another process has the same run-id")
	}
	if v := ask("holder:a"); v != "none" {
		t.Errorf("a server without persistence still knows the holder %s", v)
	}
}
