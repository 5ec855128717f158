//go:build integration

package etcd

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/lock"
)

const ttl = 2 * time.Second

// start starts three members of a version, which all tests share.
func start(t *testing.T, v Version) servers.Running {
	t.Helper()
	return servers.Shared(t, servers.Options{
		Backend: Backend(), Lock: "chubby", TTL: ttl, Run: map[Version]string{builtIn: "confetcd", version3_4: "confetcd34"}[v],
		Decode: func(into any) error {
			p := into.(*Params)
			p.LockDelay, p.Version = 2*time.Second, v
			return nil
		},
	})
}

// asker asks a node and fails the test if there is no answer.
func asker(t *testing.T, s topology.Service) func(node, fact string) string {
	return func(node, fact string) string {
		t.Helper()
		return servers.Ask(t, s, node, fact)
	}
}

// users dials once and makes n users.
func users(t *testing.T, r servers.Running, name string, n int) []lock.Locker {
	t.Helper()
	l, _ := Backend().Lock(name)
	conn, err := l.Dial(t.Context(), r.Access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var out []lock.Locker
	for i := range n {
		u, err := conn.Locker(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = u.Close() })
		out = append(out, u)
	}
	return out
}

// TestFacts asks the members of a real cluster for every fact.
func TestFacts(t *testing.T) {
	r := start(t, builtIn)
	t.Run("members", func(t *testing.T) { memberFacts(t, r) })
	for _, l := range Backend().Locks {
		t.Run(l.Name, func(t *testing.T) { lockFacts(t, r, l.Name) })
		t.Run(l.Name+"-stored", func(t *testing.T) { servers.Stored(t, r.For(t, Backend(), l.Name), l) })
	}
	t.Run("requests", func(t *testing.T) { servers.CountsRequests(t, r, mutex()) })
	t.Run("woken", func(t *testing.T) { woken(t, r) })
	t.Run("delay", func(t *testing.T) { lockDelay(t, r) })
	t.Run("sequencer", func(t *testing.T) { sequencers(t, r) })
}

// woken has eight users pass a lock on. In a queue a release wakes one of them. If all wait at one key, it wakes all;
// if the server waits for them, none.
func woken(t *testing.T, r servers.Running) {
	const n = 8
	got := map[string]int64{}
	watchers := asker(t, r.For(t, Backend(), "txn").Service) // it counts the watchers of all locks
	for _, l := range []backends.Lock{mutex(), txn(), v3lock()} {
		ask := asker(t, r.For(t, Backend(), l.Name).Service)
		got[l.Name] = servers.Woken(t, r, l, n, func(waiting int) {
			all := strconv.Itoa(waiting)
			wait.Until(t, 30*time.Second, "all wait", func() bool { // a user whose key is there may not watch yet, and then need not be woken
				return ask("etcd-1", "waiters:"+l.Name) == all && (l.Name != "mutex" || watchers("etcd-1", "waiters:txn") == all)
			})
		})
	}
	t.Logf("notifications of %d users: %v", n, got)
	for name, want := range map[string]int64{"mutex": n - 1, "txn": n * (n - 1) / 2, "v3lock": 0} {
		if got[name] != want {
			t.Errorf("%s: %d notifications, want %d", name, got[name], want)
		}
	}
}

func memberFacts(t *testing.T, r servers.Running) {
	ask := asker(t, r.Service)
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
		servers.Clock(t, r.Service, n.Name())
		if v := ask(n.Name(), "raft-term"); v == "0" || v != ask("etcd-1", "raft-term") {
			t.Errorf("term of %s: %s", n.Name(), v)
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
	d := r.Service.Describe(t.Context())
	if d["etcd.ttl-granted"] != "2s" || !strings.HasPrefix(d["etcd.version"], "3.") || d["lock.lock-delay"] != "2s" {
		t.Errorf("description: %v", d)
	}
}

func lockFacts(t *testing.T, r servers.Running, name string) {
	service := r.For(t, Backend(), name).Service
	ask := asker(t, service)
	us := users(t, r, name, 2)
	becomes(t, service, "etcd-1", "leases", "2") // a member knows a lease once it has applied it
	if v := ask("etcd-2", "holder:"+name); v != none {
		t.Errorf("holder of a free lock: %s", v)
	}
	request := lock.Request{Lock: name, TTL: ttl}
	g, err := us[0].Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := GrantKey(g.ID)
	if v := ask("etcd-2", "holder:"+name); err != nil || v != g.ID && !(name == "v3lock-blind" && strings.HasPrefix(v, key+"@")) {
		t.Errorf("holder %s, grant %s, %v", v, g.ID, err)
	}
	if v := ask("etcd-2", "waiters:"+name); v != "0" {
		t.Errorf("%s waiters of a lock that nobody waits for", v)
	}
	done := make(chan error, 1)
	go func() {
		g, err := us[1].Acquire(t.Context(), request)
		if err == nil {
			err = us[1].Release(t.Context(), g)
		}
		done <- err
	}()
	becomes(t, service, "etcd-2", "waiters:"+name, "1")
	if err := us[0].Release(t.Context(), g); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, u := range us {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	}
}

// becomes waits for an answer of a node.
func becomes(t *testing.T, s topology.Service, node, fact, want string) {
	t.Helper()
	wait.Until(t, time.Minute, fact+" of "+node+" is "+want, func() bool {
		v, err := s.Ask(t.Context(), node, fact)
		return err == nil && v == want
	})
}

// lockDelay has one session die, and another one release its lock.
func lockDelay(t *testing.T, r servers.Running) {
	us := users(t, r, "chubby", 3)
	request := lock.Request{Lock: "delayed", TTL: ttl}
	first := us[0].(*chubbyUser)
	if _, err := first.Acquire(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	// The session ends without a release.
	before := time.Now()
	if _, err := first.conn.client.Revoke(t.Context(), first.session.lease); err != nil {
		t.Fatal(err)
	}
	g, err := us[1].Acquire(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(before); d < 2*time.Second {
		t.Errorf("granted %s after its holder's session died; the lock-delay is 2s", d)
	}
	if err := us[1].Release(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if _, err := us[2].(lock.TryAcquirer).TryAcquire(t.Context(), request); err != nil {
		t.Errorf("not granted at once after a release: %v", err)
	}
}

// sequencers makes the checks that a resource would make.
func sequencers(t *testing.T, r servers.Running) {
	us := users(t, r, "chubby", 2)
	ctx := t.Context()
	checker := us[1].(lock.SequencerChecker)
	for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
		request := lock.Request{Lock: "sequenced", Mode: mode, TTL: ttl}
		g, err := us[0].Acquire(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		q := g.Sequencer()
		if err := checker.CheckSequencer(ctx, q); err != nil {
			t.Errorf("%s: the holder's sequencer: %v", mode, err)
		}
		wrong := q
		wrong.Mode = lock.Shared - mode
		if err := checker.CheckSequencer(ctx, wrong); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("%s: a sequencer of the other mode: %v", mode, err)
		}
		if mode == lock.Shared { // the second grant has the first one's generation
			h, err := us[1].Acquire(ctx, request)
			if err != nil || h.Token != g.Token {
				t.Fatalf("a second one who shares has generation %d, the first %d: %v", h.Token, g.Token, err)
			}
			if err := us[1].Release(ctx, h); err != nil {
				t.Fatal(err)
			}
		}
		if err := us[0].Release(ctx, g); err != nil {
			t.Fatal(err)
		}
		if err := checker.CheckSequencer(ctx, q); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("%s: the sequencer of a lock that was given back: %v", mode, err)
		}
		if g, err = us[0].Acquire(ctx, request); err != nil {
			t.Fatal(err)
		}
		if err := checker.CheckSequencer(ctx, q); !errors.Is(err, lock.ErrNotHeld) {
			t.Errorf("%s: the sequencer of an earlier generation: %v", mode, err)
		}
		if err := us[0].Release(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaiterWithRevokedLease revokes the lease of a user who waits in the server's queue, and then frees the lock. etcd
// 3.4 grants it nevertheless, with a key that is gone; only an adapter that reads the key notices.
func TestWaiterWithRevokedLease(t *testing.T) {
	for _, c := range []struct {
		version Version
		lock    string
		says    string // "": it is granted
	}{
		{builtIn, "v3lock", "session is expired"},
		{version3_4, "v3lock", "the server granted key"},
		{builtIn, "v3lock-blind", "session is expired"},
		{version3_4, "v3lock-blind", ""},
	} {
		t.Run(string(c.version)+","+c.lock, func(t *testing.T) {
			r := start(t, c.version)
			service := r.For(t, Backend(), c.lock).Service
			us := users(t, r, c.lock, 2)
			request := lock.Request{Lock: "left-" + c.lock, TTL: ttl}
			g, err := us[0].Acquire(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := us[1].Acquire(t.Context(), request)
				done <- err
			}()
			becomes(t, service, "etcd-1", "waiters:"+request.Lock, "1")
			waiter := sessionOf(us[1])
			if _, err := waiter.conn.client.Revoke(t.Context(), waiter.lease); err != nil {
				t.Fatal(err)
			}
			if err := us[0].Release(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			err = <-done
			if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, lock.ErrLost) || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("the waiter is told %v; it should say %q", err, c.says)
			}
		})
	}
}

// sessionOf returns the session of a user of the server's lock service.
func sessionOf(u lock.Locker) *session {
	if b, ok := u.(*blindUser); ok {
		return b.session
	}
	return u.(*serviceUser).session
}

// TestConformance runs the suite on every lock, on a real cluster of three.
func TestConformance(t *testing.T) {
	r := start(t, builtIn)
	t.Run("suite", func(t *testing.T) {
		conformance.RunAll(t, conformance.Options{Backend: Backend().Backend, Access: r.Access})
	})
}

// TestConformance34 runs the suite on etcd 3.4 for the two locks that come with etcd: one in the client's version,
// the other in the server's.
func TestConformance34(t *testing.T) {
	r := start(t, version3_4)
	if v := r.Service.Describe(t.Context())["etcd.version"]; !strings.HasPrefix(v, "3.4.") {
		t.Errorf("version %s", v)
	}
	t.Run("suite", func(t *testing.T) {
		for _, name := range []string{"mutex", "v3lock", "v3lock-blind"} {
			o := conformance.Options{Backend: Backend().Backend, Access: r.Access}
			o.Access.Lock = name
			t.Run(name, func(t *testing.T) { t.Parallel(); conformance.Run(t, o) })
		}
	})
}
