//go:build integration

package locktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

func TestMain(m *testing.M) { Main(m) }

// users numbers the users of this process.
var users atomic.Int64

// own connects a user of one of lockquake's own locks, given nothing but the endpoints.
func own(backend, name, port string) Connect {
	return func(ctx context.Context, endpoints []string) (lock.Locker, error) {
		list := all.All()
		i := slices.IndexFunc(list, func(b listed.Backend) bool { return b.Name == backend })
		l, ok := list[i].Lock(name)
		if !ok {
			return nil, fmt.Errorf("%s has no lock %s", backend, name)
		}
		a := backends.Access{Backend: backend, Lock: name, TTL: usualTTL, Run: "own"}
		if backend == "redlock" { // the usual 50 ms are too short on a busy machine
			a.Params = json.RawMessage(`{"node_timeout_ns": 1000000000}`)
		}
		for i, e := range endpoints {
			host := e
			if strings.Contains(e, "://") {
				u, err := url.Parse(e)
				if err != nil {
					return nil, err
				}
				a.Password, _ = u.User.Password()
				a.User, host = u.User.Username(), u.Host
			}
			a.Nodes = append(a.Nodes, backends.Endpoint{Name: fmt.Sprintf("node-%d", i+1), Addresses: map[string]string{port: host}, Login: &node.Login{User: a.User, Password: a.Password}})
		}
		conn, err := l.Dial(ctx, a)
		if err != nil {
			return nil, err
		}
		return conn.Locker(ctx, int(users.Add(1)))
	}
}

// TestServices runs a correct lock of lockquake's own on each service.
func TestServices(t *testing.T) {
	if !everything() && second == nil {
		t.Skip("left to make test-all: each backend's own tests put its locks to the suite, and TestExample puts one through locktest")
	}
	story := Scenario("redis-holder-pause") // passes because it finds what a lease cannot prevent
	for _, c := range []struct {
		service    Service
		lock, port string
		more       []Option
	}{
		{Redis(), "redsync", "client", []Option{story}},
		{Redlock(), "redlock", "client", nil},
		{RedisCluster(), "set-px-lua", "client", nil},
		{RedisSentinel(), "set-px-lua", "sentinel", nil},
		{Etcd(), "mutex", "client", nil},
		{ZooKeeper(), "sequential", "client", nil},
		{Postgres(), "lease", "client", nil},
		{Postgres(), "advisory", "client", nil}, // its grants have no expiry
	} {
		budget := 25 * time.Second // for two or three runs
		if os.Getenv("LOCKQUAKE_TEST_ALL") != "" {
			budget = 0
		}
		t.Run(c.service.backend+"-"+c.lock, func(t *testing.T) {
			Run(t, c.service, own(c.service.backend, c.lock, c.port), append(c.more, Provider(provider()), Budget(budget), Users(2, 3))...)
		})
	}
}
