//go:build integration

package redis

import (
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/lock"
)

func start(t *testing.T, run string) conformance.Running {
	t.Helper()
	return conformance.Start(t, conformance.StartOptions{Backend: Single(), Lock: "set-px-lua", TTL: time.Second, Run: run})
}

// fails is what the wrong locks fail, as their doc comments say.
var fails = map[string][]string{
	"setnx":        {"expiry", "expiry-process", "release-stale", "errors-acquire", "release-forged"},
	"setnx-expire": {"errors-acquire"},
	"set-px-del":   {"release-forged", "release-stale"},
}

// TestConformance puts every lock to the suite, on a real server.
func TestConformance(t *testing.T) {
	r := start(t, "confredis")
	t.Run("suite", func(t *testing.T) {
		conformance.RunAll(t, conformance.Options{Backend: Single(), Access: r.Access}, fails)
	})
}

// TestFacts asks a real server for every fact, and holds the holder's fact to a real grant.
func TestFacts(t *testing.T) {
	r := start(t, "factsredis")
	ctx := t.Context()
	conn, err := setPxLua().Dial(ctx, r.Access)
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
		v, err := r.Service.Ask(ctx, "redis-1", fact)
		if err != nil {
			t.Fatalf("%s: %v", fact, err)
		}
		return v
	}
	if v := ask("holder:a"); v != "none" {
		t.Errorf("holder of a free lock: %s", v)
	}
	g, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Second})
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
	if at, err := time.Parse(time.RFC3339Nano, ask("clock")); err != nil || time.Since(at).Abs() > time.Second {
		t.Errorf("clock: %v, %v", at, err)
	}
	before := ask("run-id")
	if _, err := r.Service.Ask(ctx, "redis-1", "weather"); err == nil {
		t.Error("a fact that is not known was answered")
	}
	if v := r.Service.Describe(ctx)["redis.version"]; v == "" || v[0] < '5' {
		t.Errorf("version: %q", v)
	}

	n := r.Cluster.Node("redis-1")
	_ = conn.(*connection).client.ShutdownNoSave(ctx) // the server ends instead of answering
	select {
	case <-n.Exited():
	case <-time.After(10 * time.Second):
		t.Fatal("the server is still there 10s after SHUTDOWN")
	}
	if v := ask("serves"); v != "false" {
		t.Errorf("serves after the end of the server: %s", v)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	conformance.Await(ctx, t, r.Service)
	if v := ask("run-id"); v == before {
		t.Error("another process has the same run-id")
	}
	if v := ask("holder:a"); v != "none" {
		t.Errorf("a server without persistence still knows the holder %s", v)
	}
}
