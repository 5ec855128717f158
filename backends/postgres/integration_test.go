//go:build integration

package postgres

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/lock"
)

// serve starts a server that all tests share, and returns it as the users of a lock see it.
func serve(t *testing.T, lockName string) servers.Running {
	t.Helper()
	return servers.Shared(t, servers.Options{Backend: Backend(), Lock: leaseName, TTL: time.Second, Run: "confpg"}).For(t, Backend(), lockName)
}

// TestConformance runs the suite on every lock, on a real server.
func TestConformance(t *testing.T) {
	r := serve(t, leaseName)
	t.Run("suite", func(t *testing.T) {
		conformance.RunAll(t, conformance.Options{Backend: Backend().Backend, Access: r.Access})
	})
}

// users returns two users of a lock, each on its own connection.
func users(t *testing.T, a backends.Access, lockName string) (first, second lock.Locker) {
	t.Helper()
	l, ok := Backend().Lock(lockName)
	if !ok {
		t.Fatalf("no lock %s", lockName)
	}
	a.Lock = lockName
	conn, err := l.Dial(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var us [2]lock.Locker
	for i := range us {
		if us[i], err = conn.Locker(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = us[i].Close() })
	}
	return us[0], us[1]
}

// asker asks a service for facts, and fails the test if there is no answer.
func asker(t *testing.T, s topology.Service) func(fact string) string {
	t.Helper()
	return func(fact string) string {
		t.Helper()
		return servers.Ask(t, s, serverName, fact)
	}
}

// until waits for a fact.
func until(t *testing.T, ask func(string) string, fact, want string) {
	t.Helper()
	wait.Until(t, time.Minute, fact+" is "+want, func() bool { return ask(fact) == want })
}

// TestFacts asks a real server for every fact, and compares those about a lock with real grants of each lock.
func TestFacts(t *testing.T) {
	for _, name := range []string{leaseName, advisoryName, rowName} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, name)
			l, _ := Backend().Lock(name)
			servers.Stored(t, r, l)
			ask := asker(t, r.Service)
			plainFacts(t, r.Service, ask)
			first, second := users(t, r.Access, name)
			until(t, ask, "sessions", "2")
			if v := ask("holder:a"); v != "none" {
				t.Errorf("holder of a free lock: %s", v)
			}
			g, err := first.Acquire(t.Context(), lock.Request{Lock: "a", TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			holder := ask("holder:a")
			if name == leaseName {
				if holder != g.ID {
					t.Errorf("holder %s, grant %s", holder, g.ID)
				}
				if _, err := r.Service.Ask(t.Context(), serverName, "waiters:a"); err == nil {
					t.Error("the server claims to know who polls")
				}
				return
			}
			if want := strconv.Itoa(int(first.(*sessionHolder).sessions[0].conn.PgConn().PID())); holder != want {
				t.Errorf("holder %s, its session is %s", holder, want)
			}
			oneWaits(t, ask, func(ctx context.Context) error {
				_, err := second.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Minute})
				return err
			})
		})
	}
}

// oneWaits lets one user wait, checks that the waiter is counted, and cancels it.
func oneWaits(t *testing.T, ask func(string) string, wait func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- wait(ctx) }()
	until(t, ask, "waiters:a", "1")
	cancel()
	if err := <-done; !errors.Is(err, lock.ErrContended) {
		t.Errorf("a cancelled wait is certainly no grant, but says: %v", err)
	}
	if v := ask("waiters:a"); v != "0" {
		t.Errorf("%s sessions wait after the cancel", v)
	}
}

func plainFacts(t *testing.T, s topology.Service, ask func(string) string) {
	t.Helper()
	if ask("serves") != "true" || ask("role") != "primary" {
		t.Errorf("serves %s, role %s", ask("serves"), ask("role"))
	}
	servers.Clock(t, s, serverName)
	if ask("started") == "" || ask("lsn") == "" {
		t.Errorf("started %q, lsn %q", ask("started"), ask("lsn"))
	}
	wait.Until(t, time.Minute, "syncs are timed", func() bool { // the server counts a session's work about a second later
		x := s.(topology.SyncTimer).Syncs(t.Context())[serverName]
		return x.N > 0 && x.Took > 0 && x.Took < time.Minute
	})
	if _, err := s.Ask(t.Context(), serverName, "weather"); err == nil {
		t.Error("a fact that is not known was answered")
	}
	d := s.Describe(t.Context())
	if d["postgres.version"] == "" || d["postgres.version"][0] < '1' || d["postgres.synchronous_commit"] != "on" {
		t.Errorf("description: %v", d)
	}
}

// TestCrash kills the server under a holder of each kind. The lease comes back with its data. The other locks ended
// with their sessions, and their holders learn of it.
func TestCrash(t *testing.T) {
	r := serve(t, leaseName)
	ctx := t.Context()
	ask := asker(t, r.Service)
	before := ask("started")
	req := lock.Request{Lock: "crash", TTL: time.Minute}
	type holder struct {
		first, second lock.Locker
		grant         lock.Grant
		changes       <-chan lock.Change
	}
	holders := map[string]holder{}
	for _, name := range []string{leaseName, advisoryName, rowName} {
		h := holder{}
		h.first, h.second = users(t, r.Access, name)
		var err error
		if h.grant, err = h.first.Acquire(ctx, req); err != nil {
			t.Fatal(err)
		}
		if w, ok := h.first.(lock.Watcher); ok {
			h.changes = w.Watch(ctx, h.grant)
		}
		holders[name] = h
	}
	n := r.Cluster.Node(serverName)
	if _, err := n.Signals.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if v := ask("serves"); v != "false" {
		t.Errorf("serves after the kill: %s", v)
	}
	if err := n.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	servers.Await(ctx, t, r.Service)
	if ask("started") == before {
		t.Error("a server that was started again says that it started when the old one did")
	}
	for name, h := range holders {
		if h.changes == nil {
			if err := h.first.(lock.Checker).Check(ctx, h.grant); err != nil {
				t.Errorf("%s: the grant after the crash: %v", name, err)
			}
			if _, err := h.second.(lock.TryAcquirer).TryAcquire(ctx, req); !errors.Is(err, lock.ErrContended) {
				t.Errorf("%s: another user after the crash: %v", name, err)
			}
			continue
		}
		if c, ok := <-h.changes; !ok || !c.Lost {
			t.Errorf("%s: the holder was not told of the loss: %+v", name, c)
		}
		if _, err := h.second.(lock.TryAcquirer).TryAcquire(ctx, req); err != nil {
			t.Errorf("%s: another user after the crash: %v", name, err)
		}
	}
}
