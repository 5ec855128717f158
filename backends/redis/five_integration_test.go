//go:build integration

package redis

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/redis/access"
	topologies "github.com/lockquake/lockquake/backends/redis/servers"
	"github.com/lockquake/lockquake/lock"
)

// fiveTTL is the TTL of these tests.
const fiveTTL = 2 * time.Second

// startFive starts five servers that all tests share, with a node timeout for a busy machine.
func startFive(t *testing.T) servers.Running {
	t.Helper()
	return servers.Shared(t, servers.Options{
		Backend: Five(), Lock: "redlock", TTL: fiveTTL, Run: "conffive",
		Decode: func(into any) error {
			into.(*topologies.FiveParams).NodeTimeout = fiveTTL / 2
			return nil
		},
	})
}

// TestFiveConformance runs the suite on the locks on five servers.
func TestFiveConformance(t *testing.T) {
	r := startFive(t)
	servers.CountsRequests(t, r, lockOf(t, Five(), "redlock"))
	for _, l := range Five().Locks {
		servers.Stored(t, r, l)
	}
	t.Run("suite", func(t *testing.T) {
		conformance.RunAll(t, conformance.Options{Backend: Five().Backend, Access: r.Access, Voters: len(r.Access.Nodes)})
	})
}

// TestFiveElapsedCheck stops a client after its quorum of replies and before it reads its clock, for longer than the
// keys live; another user gets the lock meanwhile. With the check of the clock there is no second holder.
func TestFiveElapsedCheck(t *testing.T) {
	r := startFive(t)
	for _, l := range []backends.Lock{lockOf(t, Five(), "redlock"), lockOf(t, Five(), "redlock-no-elapsed-check")} {
		t.Run(l.Name, func(t *testing.T) {
			stopped, other := userOn(t, r, l), userOn(t, r, lockOf(t, Five(), "redlock"))
			var held lock.Grant
			ctx := lock.Arm(t.Context(), func(_ context.Context, point string) {
				if point != "replies-in" || held.ID != "" {
					return
				}
				var err error
				if held, err = other.Acquire(t.Context(), lock.Request{Lock: l.Name, TTL: time.Minute}); err != nil {
					t.Error(err)
				}
			})
			g, err := stopped.(lock.TryAcquirer).TryAcquire(ctx, lock.Request{Lock: l.Name, TTL: fiveTTL})
			switch {
			case l.Wrong == "" && !errors.Is(err, lock.ErrContended):
				t.Errorf("grant %+v, %v; the quorum was of keys that were over", g, err)
			case l.Wrong != "" && err != nil:
				t.Errorf("refused: %v", err)
			case l.Wrong != "" && g.ValidUntil.Covers(time.Now()):
				t.Error("two users are entitled to the lock")
			}
			if err := other.Release(t.Context(), held); err != nil {
				t.Errorf("release of the grant that stands: %v", err)
			}
		})
	}
}

// TestFiveServersDown ends servers one after the other. With two of five down locks are still granted; with three
// down there is certainly no grant. Locks of servers that forgot their data are free when these are back.
func TestFiveServersDown(t *testing.T) {
	r := startFive(t)
	ctx := t.Context()
	u := userOn(t, r, lockOf(t, Five(), "redlock"))
	request := lock.Request{Lock: "down", TTL: time.Minute} // servers that are down cost a second each time
	for i, name := range []string{"redlock-1", "redlock-4", "redlock-5"} {
		end(t, r, name)
		g, err := u.(lock.TryAcquirer).TryAcquire(ctx, request)
		if i == 2 {
			if err == nil || !lock.Certain(err) {
				t.Errorf("with three servers down: grant %+v, %v", g, err)
			}
			break
		}
		if err != nil {
			t.Fatalf("with %d servers down: %v", i+1, err)
		}
		if err := u.Release(ctx, g); err != nil {
			t.Errorf("release with %d servers down: %v", i+1, err)
		}
	}
	if err := r.Service.Ready(ctx); err == nil {
		t.Error("the service is ready with three servers down")
	}
	for _, name := range []string{"redlock-1", "redlock-4", "redlock-5"} {
		if err := r.Cluster.Node(name).Process.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	servers.Await(ctx, t, r.Service)
	if _, err := u.Acquire(ctx, request); err != nil {
		t.Errorf("with all servers back: %v", err)
	}
}

// end makes a server exit.
func end(t *testing.T, r servers.Running, name string) {
	t.Helper()
	n := r.Cluster.Node(name)
	o := access.Options(time.Second, n.Login()).Simple()
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return n.Dial(ctx, access.Port) }
	client := redis.NewClient(o)
	defer client.Close()
	_ = client.ShutdownNoSave(t.Context()) // the server exits instead of answering
	select {
	case <-n.Process.Exited():
	case <-time.After(time.Minute):
		t.Fatalf("%s is still there a minute after SHUTDOWN", name)
	}
}

// TestFiveFacts asks for the majority's value.
func TestFiveFacts(t *testing.T) {
	r := startFive(t)
	ctx := t.Context()
	ask := func(node, fact string) string {
		t.Helper()
		return servers.Ask(t, r.Service, node, fact)
	}
	u := userOn(t, r, lockOf(t, Five(), "redlock"))
	if v := ask("redlock-1", "majority:a"); v != "none" {
		t.Errorf("a majority has %s of a free lock", v)
	}
	g, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	end(t, r, "redlock-2")
	if v := ask("redlock-2", "majority:a"); v != g.ID {
		t.Errorf("a majority has %s, the grant is %s", v, g.ID)
	}
	if v := ask("redlock-2", "serves"); v != "false" {
		t.Errorf("a server that ended serves: %s", v)
	}
	if v := ask("redlock-3", "holder:a"); v != g.ID {
		t.Errorf("redlock-3 has %s, the grant is %s", v, g.ID)
	}
	if v := ask("redlock-3", "role"); v != "master" {
		t.Errorf("role: %s", v)
	}
	if err := u.Release(ctx, g); err != nil {
		t.Errorf("release: %v", err)
	}
	if v := ask("redlock-1", "majority:a"); v != "none" {
		t.Errorf("a majority has %s after the release", v)
	}
	if v := r.Service.Describe(ctx)["redis.topology"]; v != "5 independent" {
		t.Errorf("topology: %s", v)
	}
	if err := r.Cluster.Node("redlock-2").Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	servers.Await(ctx, t, r.Service)
}
