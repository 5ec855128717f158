package locks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// Replies of a scripted server.
const (
	replyOK  = "+OK\r\n"
	replyNil = "$-1\r\n"
	replyOne = ":1\r\n"
	noReply  = ""
	breakOff = "breaks off" // after breakTime, without a reply
)

// breakTime is how long a server waits before it breaks off.
const breakTime = 200 * time.Millisecond

// fake is one scripted server.
type fake struct {
	address string
	sets    atomic.Int32
	deletes atomic.Int32
}

// fakes starts a server for each reply to SET. All of them accept deletes.
func fakes(t *testing.T, sets ...string) []*fake {
	t.Helper()
	all := make([]*fake, len(sets))
	for i, reply := range sets {
		f := &fake{}
		f.address = serveCommands(t, func(c net.Conn, text string) {
			if strings.Contains(text, "EVALSHA") && !strings.Contains(text, strings.ToUpper(setIncr.Hash())) {
				f.deletes.Add(1)
				_, _ = io.WriteString(c, replyOne)
				return
			}
			f.sets.Add(1)
			if reply == breakOff {
				time.Sleep(breakTime)
				_ = c.Close()
				return
			}
			_, _ = io.WriteString(c, reply)
		})
		all[i] = f
	}
	return all
}

// quorumUser returns a user of a lock on the fakes.
func quorumUser(t *testing.T, l backends.Lock, p access.QuorumParams, servers []*fake) lock.Locker {
	t.Helper()
	a := backends.Access{Backend: access.Five, Lock: l.Name, TTL: time.Second, Run: "unit"}
	for i, f := range servers {
		a.Nodes = append(a.Nodes, backends.Endpoint{Name: fmt.Sprint("redlock-", i+1), Addresses: map[string]string{access.Port: f.address}})
	}
	var err error
	if a.Params, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Dial(t.Context(), a)
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

// patient returns parameters for a busy machine.
func patient() access.QuorumParams {
	p := access.QuorumDefaults(time.Second)
	p.NodeTimeout = 10 * time.Second
	return p
}

// request1m asks for keys that do not expire within a test, request1s for keys that do.
func request1m() lock.Request { return lock.Request{Lock: "a", TTL: time.Minute} }
func request1s() lock.Request { return lock.Request{Lock: "a", TTL: time.Second} }

// TestTakenBackEverywhere: after a failed attempt every server is asked to delete, including those that had the key
// and the one that hung up.
func TestTakenBackEverywhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lock  backends.Lock
		order string
	}{{redlock(), access.OrderParallel}, {redlock(), access.OrderSequential}, {redsyncFive(), access.OrderParallel}} {
		t.Run(c.lock.Name+"/"+c.order, func(t *testing.T) {
			t.Parallel()
			servers := fakes(t, replyOK, replyOK, replyNil, replyNil, breakOff)
			p := patient()
			p.Order = c.order
			_, err := quorumUser(t, c.lock, p, servers).(lock.TryAcquirer).TryAcquire(t.Context(), request1m())
			if err == nil || lock.Certain(err) {
				t.Errorf("two yes and one that hung up may be a majority, but: %v", err)
			}
			for i, f := range servers {
				if f.sets.Load() != 1 || f.deletes.Load() != 1 {
					t.Errorf("server %d: %d sets, %d deletes", i+1, f.sets.Load(), f.deletes.Load())
				}
			}
		})
	}
}

// TestQuorumGrants: two of five servers hang up, and the grant counts from before the first request. If servers are
// asked one after the other, the delays add up.
func TestQuorumGrants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lock  backends.Lock
		order string
		waits int // for one that hangs up
	}{
		{redlock(), access.OrderParallel, 1},
		{redlock(), access.OrderSequential, 2},
		{redlockNoElapsedCheck(), access.OrderParallel, 1},
		{redsyncFive(), access.OrderParallel, 1},
	} {
		t.Run(c.lock.Name+"/"+c.order, func(t *testing.T) {
			t.Parallel()
			p := patient()
			p.Order = c.order
			before := time.Now()
			g, err := quorumUser(t, c.lock, p, fakes(t, replyOK, breakOff, replyOK, breakOff, replyOK)).(lock.TryAcquirer).TryAcquire(t.Context(), request1m())
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(g.Issued); took < time.Duration(c.waits)*breakTime || g.Issued.Before(before) {
				t.Errorf("issued %s ago, but two servers were waited for", took)
			}
			if end, ok := g.ValidUntil.Time(); !ok || !end.Equal(p.End(g.Issued, time.Minute)) {
				t.Errorf("valid for %s of 1m", end.Sub(g.Issued))
			}
			if want := (lock.Reason{Cause: lock.CauseAnsweredBy, Seen: 0b10101, N: 5}); c.lock.Name != "redsync" && g.Reason != want {
				t.Errorf("granted by %+v, want %+v", g.Reason, want)
			}
		})
	}
}

// TestReleaseWhereGrantedPassesOverTheSilent: of five servers three said yes, and one that hung up may have the key.
// A release only on servers that said yes leaves it there.
func TestReleaseWhereGrantedPassesOverTheSilent(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]string{access.ReleaseAll: "1 1 1 1 1", access.ReleaseGranted: "1 0 1 0 1"} {
		p := patient()
		p.Release = release
		servers := fakes(t, replyOK, breakOff, replyOK, replyNil, replyOK)
		u := quorumUser(t, redlock(), p, servers)
		g, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), request1m())
		if err == nil {
			err = u.Release(t.Context(), g)
		}
		if err != nil {
			t.Fatal(err)
		}
		var asked []string
		for _, f := range servers {
			asked = append(asked, fmt.Sprint(f.deletes.Load()))
		}
		if got := strings.Join(asked, " "); got != want {
			t.Errorf("release: %s: deletes %s, want %s", release, got, want)
		}
	}
}

// TestHighestCounter: the servers' counters differ. The token is the highest count of those that said yes.
func TestHighestCounter(t *testing.T) {
	t.Parallel()
	var servers []*fake
	for _, reply := range []string{":3\r\n", ":7\r\n", ":5\r\n", replyNil, replyNil} {
		servers = append(servers, &fake{address: serveCommands(t, func(c net.Conn, _ string) { _, _ = io.WriteString(c, reply) })})
	}
	g, err := quorumUser(t, redlockIncr(), patient(), servers).(lock.TryAcquirer).TryAcquire(t.Context(), request1m())
	if err != nil || g.Token != 7 {
		t.Errorf("token %d, %v; want 7", g.Token, err)
	}
}

// TestSilentServers: no server answers; an attempt ends nevertheless, in both orders.
func TestSilentServers(t *testing.T) {
	t.Parallel()
	for _, order := range []string{access.OrderParallel, access.OrderSequential} {
		p := patient()
		p.NodeTimeout, p.Order = 50*time.Millisecond, order
		for _, l := range Quorum() {
			u := quorumUser(t, l, p, fakes(t, noReply, noReply, noReply))
			g, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), request1m())
			if blind := l.Name == redlockCountsErrors().Name; (err == nil) != blind {
				t.Errorf("%s, %s: granted %+v, %v", l.Name, order, g, err)
			}
		}
	}
}

// TestElapsedCheck stops the client between its quorum of replies and the check of the clock, until the keys have
// expired. This is the only mistake of the wrong lock.
func TestElapsedCheck(t *testing.T) {
	t.Parallel()
	late := func(t *testing.T, l backends.Lock, elapsed string) (lock.Grant, error) {
		p := patient()
		p.Elapsed = elapsed
		p.Retry.Tries = 1
		stopped := lock.Arm(t.Context(), func(_ context.Context, point string) {
			if point == "replies-in" {
				time.Sleep(time.Second)
			}
		})
		return quorumUser(t, l, p, fakes(t, replyOK, replyOK, replyOK, replyNil, replyNil)).Acquire(stopped, request1s())
	}
	for _, elapsed := range []string{access.ElapsedMonotonic, access.ElapsedWall} {
		t.Run(elapsed, func(t *testing.T) {
			t.Parallel()
			g, err := late(t, redlock(), elapsed)
			if !errors.Is(err, lock.ErrContended) {
				t.Errorf("grant %+v, %v", g, err)
			}
			if r, ok := lock.ReasonOf(err); !ok || r.Cause != lock.CauseTooLate || r.N <= 0 {
				t.Errorf("because %+v", r)
			}
		})
	}
	t.Run("without", func(t *testing.T) {
		t.Parallel()
		g, err := late(t, redlockNoElapsedCheck(), access.ElapsedMonotonic)
		if err != nil {
			t.Fatal(err)
		}
		if g.ValidUntil.Covers(time.Now()) {
			t.Error("the grant claims to be valid")
		}
	})
}

// TestNoServerListens: no server listens, so certainly nothing was granted.
func TestNoServerListens(t *testing.T) {
	for _, l := range Quorum() {
		servers := make([]*fake, 3)
		for i := range servers {
			c, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			servers[i] = &fake{address: c.Addr().String()}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		u := quorumUser(t, l, patient(), servers)
		_, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), request1m())
		if blind := l.Name == redlockCountsErrors().Name; !errors.Is(err, lock.ErrNotSent) != blind {
			t.Errorf("%s: try: %v", l.Name, err)
		}
		if err := u.Release(t.Context(), lock.Grant{Lock: "a", ID: "b"}); !lock.Certain(err) {
			t.Errorf("%s: release: %v", l.Name, err)
		}
	}
}
