package servers

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/lock"
)

// cycles is how often CountsRequests acquires and releases a lock.
const cycles = 20

// mostRequests bounds the requests per server for an acquire of a free lock, or for a release. The recipes and
// libraries here need fewer than ten.
const mostRequests = 20

func sumOf(counts map[string]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// CountsRequests checks the servers' request counters: each server returns a number, and the sum grows with each
// acquire and each release of a user.
func CountsRequests(t *testing.T, r Running, l backends.Lock) {
	t.Helper()
	counter, ok := r.Service.(topology.RequestCounter)
	if !ok {
		t.Fatalf("%T counts no requests", r.Service)
	}
	conn := dialed(t, r, l)
	defer func() { _ = conn.Close() }()
	u, err := conn.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = u.Close() }()
	before := counter.Requests(t.Context())
	var acquires, releases []int64
	for range cycles {
		own := sumOf(counter.Requests(t.Context()))
		free := sumOf(counter.Requests(t.Context()))
		g, err := u.Acquire(t.Context(), lock.Request{Lock: "counted", TTL: r.Access.TTL})
		held := sumOf(counter.Requests(t.Context()))
		if err == nil {
			err = u.Release(t.Context(), g)
		}
		if err != nil {
			t.Fatal(err)
		}
		acquires = append(acquires, held-free-(free-own))
		releases = append(releases, sumOf(counter.Requests(t.Context()))-held-(free-own))
	}
	after := counter.Requests(t.Context())
	var sum int64
	for server, n := range after {
		was, told := before[server]
		if !told || n < was || r.Cluster.Node(server) == nil {
			t.Errorf("%s counts %d requests, %d before (%v)", server, n, was, told)
		}
		sum += n - was
	}
	t.Logf("%d cycles of %s cost %d requests: %v, %v before", cycles, l.Name, sum, after, before)
	slices.Sort(acquires)
	slices.Sort(releases)
	t.Logf("an acquire of %s costs %d requests, a release %d (medians, with pings and requests between servers)", l.Name, acquires[cycles/2], releases[cycles/2])
	if most := int64(mostRequests * len(after)); acquires[cycles/2] > most || releases[cycles/2] > most {
		t.Errorf("that is more than %d for each of %d servers", mostRequests, len(after))
	}
	if acquires[cycles/2] < 1 || releases[cycles/2] < 1 || len(before) != len(after) || len(after) == 0 {
		t.Errorf("%d cycles are %d requests to %d servers (%d before)", cycles, sum, len(after), len(before))
	}
}

// dialed connects to the running servers for one of their locks.
func dialed(t *testing.T, r Running, l backends.Lock) backends.Connection {
	t.Helper()
	access := r.Access
	access.Lock = l.Name
	conn, err := l.Dial(t.Context(), access)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Woken returns how many notifications the users of one lock got while it was passed on until each had held it once.
// Before each release, queue is called with the number of users who have not held it yet; it returns when all of them
// wait.
func Woken(t *testing.T, r Running, l backends.Lock, users int, queue func(waiting int)) int64 {
	t.Helper()
	conn := dialed(t, r, l)
	defer func() { _ = conn.Close() }()
	type holding struct {
		user  lock.Locker
		grant lock.Grant
		err   error
	}
	holders := make(chan holding, users)
	for i := range users {
		u, err := conn.Locker(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = u.Close() }()
		go func() {
			g, err := u.Acquire(t.Context(), lock.Request{Lock: l.Name, TTL: r.Access.TTL})
			holders <- holding{u, g, err}
		}()
	}
	for waiting := users - 1; waiting >= 0; waiting-- {
		h := <-holders
		if h.err != nil {
			t.Fatal(h.err)
		}
		queue(waiting)
		if err := h.user.Release(t.Context(), h.grant); err != nil {
			t.Fatal(err)
		}
	}
	return conn.(backends.NotificationCounter).Notifications()
}
