package locks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/redis/redistest"
	"github.com/lockquake/lockquake/lock"
)

func clusterUser(t *testing.T, address string, timeout time.Duration, via map[string]string) renewable {
	t.Helper()
	a := backends.Access{
		Backend: access.Cluster, Lock: "set-px-lua", TTL: time.Second, Run: "unit", Via: via,
		Nodes:  []backends.Endpoint{{Name: "redis-1", Addresses: map[string]string{access.Port: address}}},
		Params: fmt.Appendf(nil, `{"timeout_ns": %d}`, timeout),
	}
	c, err := setPxLua().Dial(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l, err := c.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return l.(renewable)
}

// TestClusterRepeatsNothing: a server hangs up, or is silent, after a SET. The outcome is unknown, and the library
// must not send the command again by itself.
func TestClusterRepeatsNothing(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{"hangs up": "", "says half": "$"} {
		var sets atomic.Int32
		u := clusterUser(t, redistest.Play(t, func(text, self string) string {
			switch {
			case strings.Contains(text, "SLOTS"):
				return redistest.Slots(self)
			case strings.Contains(text, "SET\r\n"):
				sets.Add(1)
				return reply
			}
			return "-ERR unknown command\r\n"
		}), hurry, nil)
		if _, err := u.TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second}); err == nil || lock.Certain(err) {
			t.Errorf("%s: %v", name, err)
		}
		if n := sets.Load(); n != 1 {
			t.Errorf("%s: SET was sent %d times", name, n)
		}
	}
}

// TestClusterFollowsRedirects: one server redirects the user to another, which is reached by a detour.
func TestClusterFollowsRedirects(t *testing.T) {
	const elsewhere = "192.0.2.1:6379" // a documentation address: no host has it
	target := redistest.Play(t, func(text, _ string) string {
		if strings.Contains(text, "SET\r\n") {
			return "+OK\r\n"
		}
		return "-ERR unknown command\r\n"
	})
	u := clusterUser(t, redistest.Play(t, func(text, self string) string {
		switch {
		case strings.Contains(text, "SLOTS"):
			return redistest.Slots(self)
		case strings.Contains(text, "SET\r\n"):
			return "-MOVED 1 " + elsewhere + "\r\n"
		}
		return "-ERR unknown command\r\n"
	}), patience, map[string]string{elsewhere: target})
	before := time.Now()
	g, err := u.TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second})
	if err != nil || g.Issued.Before(before) {
		t.Errorf("grant %+v, %v", g, err)
	}
}

// TestClusterRefusalIsCertain: a cluster that is down did nothing, and says so.
func TestClusterRefusalIsCertain(t *testing.T) {
	u := clusterUser(t, redistest.Play(t, func(text, self string) string {
		if strings.Contains(text, "SLOTS") {
			return redistest.Slots(self)
		}
		return "-CLUSTERDOWN The cluster is down\r\n"
	}), patience, nil)
	if _, err := u.TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second}); !errors.Is(err, lock.ErrRefused) {
		t.Errorf("try: %v", err)
	}
}

// TestSentinelClientFindsThePrimary: a Sentinel names a primary, which is reached by a detour.
func TestSentinelClientFindsThePrimary(t *testing.T) {
	primary := redistest.Play(t, func(text, _ string) string {
		if strings.Contains(text, "SET\r\n") {
			return "+OK\r\n"
		}
		return "-ERR unknown command\r\n"
	})
	watch := redistest.Play(t, func(text, _ string) string {
		switch {
		case strings.Contains(text, "GET-MASTER-ADDR-BY-NAME"):
			return "*2\r\n$9\r\n192.0.2.1\r\n$4\r\n6379\r\n"
		case strings.Contains(text, "SENTINELS"):
			return "*0\r\n"
		}
		return "-ERR unknown command\r\n"
	})
	client, err := connect(backends.Access{
		Backend: access.Sentinel, Via: map[string]string{"192.0.2.1:6379": primary},
		Nodes: []backends.Endpoint{{Name: "sentinel-1", Addresses: map[string]string{access.SentinelPort: watch}}},
	}, access.LockDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := client.Set(ctx, "a", "b", 0).Err(); err != nil {
		t.Errorf("SET: %v", err)
	}
}

// TestSentinelClientLeavesAHangingSentinel: the Sentinel that answered first falls silent. A new connection must find
// the primary through the other one.
func TestSentinelClientLeavesAHangingSentinel(t *testing.T) {
	t.Parallel()
	primary := redistest.Play(t, func(text, _ string) string {
		if strings.Contains(text, "PING") {
			return "+PONG\r\n"
		}
		return "-ERR unknown command\r\n"
	})
	host, port, _ := net.SplitHostPort(primary)
	named := fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	var asked, other atomic.Int32
	hanging := redistest.Play(t, func(text, _ string) string {
		if strings.Contains(text, "GET-MASTER-ADDR-BY-NAME") && asked.Add(1) > 1 {
			<-end
		}
		if strings.Contains(text, "GET-MASTER-ADDR-BY-NAME") {
			return named
		}
		return "-ERR unknown command\r\n"
	})
	well := redistest.Play(t, func(text, _ string) string {
		if !strings.Contains(text, "GET-MASTER-ADDR-BY-NAME") {
			return "-ERR unknown command\r\n"
		}
		if asked.Load() < 2 {
			<-end // the other one must be first
		}
		other.Add(1)
		return named
	})
	p := access.LockDefaults()
	p.Timeout = hurry // the other one answers within it; the hanging one is waited for twice as long
	client, err := connect(backends.Access{Backend: access.Sentinel, Nodes: []backends.Endpoint{
		{Name: "sentinel-1", Addresses: map[string]string{access.SentinelPort: hanging}},
		{Name: "sentinel-2", Addresses: map[string]string{access.SentinelPort: well}},
	}}, p)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 2 { // one connection each
		c := client.(*redis.Client).Conn()
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Errorf("connection %d: %v", i+1, err)
		}
	}
	if asked.Load() < 2 || other.Load() == 0 {
		t.Errorf("the hanging Sentinel was asked %d times, the other one answered %d times", asked.Load(), other.Load())
	}
}

// TestConnectRejectsUselessAccess rejects an access that reaches nothing.
func TestConnectRejectsUselessAccess(t *testing.T) {
	for backend, want := range map[string]string{access.Single: access.Port, access.Sentinel: access.SentinelPort, access.Cluster: access.Port, "redlock": "redlock"} {
		if _, err := connect(backends.Access{Backend: backend}, access.LockDefaults()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", backend, err)
		}
	}
}
