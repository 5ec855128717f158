//go:build integration

package zookeeper

import (
	"context"
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

// start starts an ensemble of three that all tests share; sessions last ttl.
func start(t *testing.T, ttl time.Duration) servers.Running {
	t.Helper()
	r := servers.Shared(t, servers.Options{Backend: Backend(), Lock: "sequential", TTL: 2 * time.Second, Run: "confzk"})
	r.Access.TTL = ttl
	return r
}

// usersOf returns users of one lock, in one process.
func usersOf(t *testing.T, a backends.Access, name string, n int) []lock.Locker {
	t.Helper()
	l, ok := Backend().Lock(name)
	if !ok {
		t.Fatalf("no lock %s", name)
	}
	c, err := l.Dial(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	users := make([]lock.Locker, n)
	for i := range users {
		if users[i], err = c.Locker(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = users[i].Close() })
	}
	return users
}

// served returns a server's monotonic clock.
func served(ctx context.Context, t *testing.T, s topology.Service, node string) (d time.Duration, since string) {
	t.Helper()
	ns, since, _ := strings.Cut(servers.Ask(t, s, node, "monotonic"), " ")
	n, err := strconv.ParseInt(ns, 10, 64)
	if err != nil {
		t.Errorf("monotonic clock of %s: %v", node, err)
	}
	return time.Duration(n), since
}

// TestFacts asks the servers of a real ensemble for every fact.
func TestFacts(t *testing.T) {
	r := start(t, 2*time.Second)
	ctx := t.Context()
	leaders := 0
	for _, n := range r.Cluster.Nodes {
		if role := servers.Ask(t, r.Service, n.Name(), "role"); role == "leader" {
			leaders++
			if v := servers.Ask(t, r.Service, "zookeeper-1", "leader"); v != n.Name() {
				t.Errorf("%s is called leader, which %s is", v, n.Name())
			}
		} else if role != "follower" {
			t.Errorf("%s is %q", n.Name(), role)
		}
		for _, fact := range []string{"serves", "answers"} {
			if v := servers.Ask(t, r.Service, n.Name(), fact); v != "true" {
				t.Errorf("%s of %s: %s", fact, n.Name(), v)
			}
		}
		servers.Clock(t, r.Service, n.Name())
		// In a wrong unit it would be days.
		if v, since := served(ctx, t, r.Service, n.Name()); v <= 0 || v > time.Hour || !strings.HasPrefix(since, "since its election ") {
			t.Errorf("monotonic clock of %s: %v %s", n.Name(), v, since)
		}
		// The first election is the first epoch, unless a slow machine caused another one.
		epoch := servers.Ask(t, r.Service, n.Name(), "epoch")
		number, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || number < 1 || epoch != servers.Ask(t, r.Service, "zookeeper-1", "epoch") {
			t.Errorf("epoch of %s: %s, %v", n.Name(), epoch, err)
		}
		if v := servers.Ask(t, r.Service, n.Name(), "zxid"); !strings.HasPrefix(v, "0x"+strconv.FormatInt(number, 16)+"000000") {
			t.Errorf("zxid of %s: %s in epoch %s", n.Name(), v, epoch)
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
	if _, err := r.Service.Ask(ctx, "zookeeper-1", "weather"); err == nil {
		t.Error("a fact that is not known was answered")
	}
	for _, name := range []string{"sequential", "single"} {
		factsOfLock(t, r, name)
	}
	servers.CountsRequests(t, r, sequential())
	for _, n := range r.Cluster.Nodes {
		if x, ok := r.Service.(topology.SyncTimer).Syncs(ctx)[n.Name()]; !ok || x.N == 0 {
			t.Errorf("syncs of %s: %+v", n.Name(), x)
		}
	}
	servers.Stored(t, r, sequential())
	d := r.Service.Describe(ctx)
	if d["zookeeper.ttl-granted"] != "2s" || !strings.HasPrefix(d["zookeeper.version"], "3.") || d["zookeeper.jvm"] == "" || d["zookeeper.notifications"] == "" {
		t.Errorf("description: %v", d)
	}
}

func factsOfLock(t *testing.T, r servers.Running, name string) {
	t.Helper()
	ctx := t.Context()
	users := usersOf(t, r.Access, name, 2)
	holder := func() string { return servers.Ask(t, r.Service, "zookeeper-2", "holder:"+name) }
	if v := holder(); v != "none" {
		t.Errorf("holder of a free lock: %s", v)
	}
	request := lock.Request{Lock: name, TTL: 2 * time.Second}
	g, err := users[0].Acquire(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	if v := holder(); v != g.ID {
		t.Errorf("holder %s, grant %s", v, g.ID)
	}
	next := make(chan lock.Grant, 1)
	go func() {
		g, _ := users[1].Acquire(ctx, request)
		next <- g
	}()
	want := "1"
	if name == "single" {
		want = "0"
	}
	wait.Until(t, 30*time.Second, "the other waits", func() bool { return servers.Ask(t, r.Service, "zookeeper-3", "waiters:"+name) == want })
	if err := users[0].Release(ctx, g); err != nil {
		t.Fatal(err)
	}
	if g := <-next; holder() != g.ID {
		t.Errorf("holder %s, grant %s", holder(), g.ID)
	}
}

// TestHerdIsWoken has eight users pass one lock on: a release wakes one of them in the queue, and all waiters in the
// herd.
func TestHerdIsWoken(t *testing.T) {
	r := start(t, 10*time.Second)
	const n = 8
	woken := map[string]int64{}
	for _, name := range []string{"sequential", "herd", "single", "zk-lock"} {
		l, _ := Backend().Lock(name)
		woken[name] = servers.Woken(t, r, l, n, func(waiting int) {
			if name != "single" { // single's waiters have no node
				wait.Until(t, 30*time.Second, "all wait", func() bool {
					return servers.Ask(t, r.Service, "zookeeper-1", "waiters:"+name) == strconv.Itoa(waiting)
				})
			}
		})
	}
	t.Logf("notifications of %d users: %v", n, woken)
	for _, name := range []string{"sequential", "zk-lock"} {
		if woken[name] > n-1 {
			t.Errorf("%s: %d notifications, at most one for each waiter", name, woken[name])
		}
	}
	if least := int64(n * (n - 1) / 2); woken["herd"] < least {
		t.Errorf("herd: %d notifications, fewer than %d", woken["herd"], least)
	}
}

// TestConformance runs the suite on every lock, in parallel, on a real ensemble of three.
func TestConformance(t *testing.T) {
	r := start(t, 2*time.Second)
	t.Run("suite", func(t *testing.T) {
		conformance.RunAll(t, conformance.Options{Backend: Backend().Backend, Access: r.Access})
	})
}

// TestLeaderKilled kills the leader while one user holds the lock and another waits. Their sessions outlive it: the
// grant stays valid, and the waiter gets its own.
func TestLeaderKilled(t *testing.T) {
	const ttl = 10 * time.Second
	r := start(t, ttl)
	ctx := t.Context()
	users := usersOf(t, r.Access, "sequential", 2)
	request := lock.Request{Lock: "a", TTL: ttl}
	g, err := users[0].Acquire(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		_, err := users[1].Acquire(ctx, request)
		next <- err
	}()
	wait.Until(t, 30*time.Second, "the other waits", func() bool { return servers.Ask(t, r.Service, "zookeeper-1", "waiters:a") == "1" })
	old := servers.Ask(t, r.Service, "zookeeper-1", "leader")
	before := map[string]string{}
	for _, n := range r.Cluster.Nodes {
		_, before[n.Name()] = served(ctx, t, r.Service, n.Name())
	}
	killed := time.Now() // the others may elect before this process sees the death
	if _, err := r.Cluster.Node(old).Signals.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if v := servers.Ask(t, r.Service, old, "serves"); v != "false" {
		t.Errorf("a killed server serves: %s", v)
	}
	var leader string
	wait.Until(t, 30*time.Second, "another leads", func() bool {
		leader = servers.Ask(t, r.Service, old, "leader")
		return leader != "none" && leader != old
	})
	t.Logf("%s leads after %s", leader, time.Since(killed).Round(time.Millisecond))
	// A server's monotonic clock starts anew with the election and must say so; otherwise the clock would seem to
	// have jumped.
	if d, since := served(ctx, t, r.Service, leader); d >= time.Since(killed) || since == before[leader] {
		t.Errorf("%s has served for %v %s, %v after the leader was killed; before it was %s", leader, d, since, time.Since(killed), before[leader])
	}
	wait.Until(t, 30*time.Second, "the grant stands after the election", func() bool { return users[0].(lock.Checker).Check(ctx, g) == nil })
	if v := servers.Ask(t, r.Service, leader, "holder:a"); v != g.ID {
		t.Errorf("holder %s, grant %s", v, g.ID)
	}
	if err := users[0].Release(ctx, g); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := <-next; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	if err := r.Cluster.Node(old).Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	servers.Await(ctx, t, r.Service)
}
