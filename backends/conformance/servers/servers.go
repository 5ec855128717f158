// Package servers starts real services for tests, with the provider that LOCKQUAKE_TEST_PROVIDER names.
package servers

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster"
)

// ProviderEnv names the provider of conformance runs: docker, local, or auto (the default). Tests could not reach a
// swarm's servers.
const ProviderEnv = "LOCKQUAKE_TEST_PROVIDER"

// Options says which service to start.
type Options struct {
	Backend listed.Backend
	Lock    string
	TTL     time.Duration
	Run     string // id of the run, [a-z0-9]+, at most 10 bytes
	// Decode fills the backend's own parameters; nil leaves the defaults.
	Decode func(into any) error
}

// Running is a service that serves.
type Running struct {
	Access  backends.Access
	Service topology.Service
	Cluster *cluster.Cluster
	decode  func(into any) error
}

// Start starts a real service for the duration of a test and returns when it serves.
func Start(t *testing.T, o Options) Running {
	t.Helper()
	return start(t, o, t.TempDir(), func(end func() error) {
		t.Cleanup(func() {
			if err := end(); err != nil {
				t.Errorf("close the service: %v", err)
			}
		})
	})
}

// standing are the services that the tests of this process share, by run.
var standing = map[string]Running{}

// Shared starts a real service for all tests of a package that name its run; they use it one after the other, and
// conformance.Main stops it. A test must leave it serving and without users.
func Shared(t *testing.T, o Options) Running {
	t.Helper()
	r, stands := standing[o.Run]
	if !stands {
		logs, err := os.MkdirTemp("", "lockquake-conformance-")
		if err != nil {
			t.Fatal(err)
		}
		conformance.AtEnd(func() error { return os.RemoveAll(logs) })
		r = start(t, o, logs, conformance.AtEnd)
		standing[o.Run] = r
	}
	return r
}

// For returns the service as the users of another lock see it.
func (r Running) For(t *testing.T, b listed.Backend, lock string) Running {
	t.Helper()
	top, err := b.New(topology.Common{TTL: r.Access.TTL, Lock: lock}, r.decode)
	if err != nil {
		t.Fatal(err)
	}
	r.Access.Lock = lock
	r.Service = top.Service(cluster.Handles(r.Cluster.Nodes))
	t.Cleanup(func() { _ = r.Service.Close() })
	return r
}

// limit bounds the start, and the time until the service serves.
const limit = 2 * time.Minute

// start starts a service. It registers with later what stops it; the last registered runs first.
func start(t *testing.T, o Options, logs string, later func(end func() error)) Running {
	t.Helper()
	if o.Decode == nil {
		o.Decode = func(any) error { return nil }
	}
	top, err := o.Backend.New(topology.Common{TTL: o.TTL, Lock: o.Lock}, o.Decode)
	if err != nil {
		t.Fatal(err)
	}
	provider := chooseProvider(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := provider.Open(ctx, cluster.Request{Run: o.Run, Specs: top.Specs(), LogDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	later(func() error { return c.Close(context.Background()) })
	r := Running{
		Access:  backends.Access{Backend: o.Backend.Name, Lock: o.Lock, TTL: o.TTL, Run: o.Run},
		Service: top.Service(cluster.Handles(c.Nodes)),
		Cluster: c,
		decode:  o.Decode,
	}
	later(r.Service.Close)
	if r.Access, err = listed.Reach(r.Access, top, cluster.Handles(c.Nodes)); err != nil {
		t.Fatal(err)
	}
	startNodes(ctx, t, r)
	return r
}

func chooseProvider(t *testing.T) cluster.Provider {
	t.Helper()
	self := os.Getenv("LOCKQUAKE_BIN")
	if self == "" { // the test's own binary, whose TestMain knows the verbs of nodes
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		self = exe
	}
	// the users are in this process, which cannot enter a run's network
	p, reason, err := cluster.Choose(t.Context(), os.Getenv(ProviderEnv),
		cluster.ChooseOptions{Self: self, Loopback: true, Mechanisms: mechanisms.All()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("provider %s: %s", p.Name(), reason)
	return p
}

// startNodes starts all nodes in parallel.
func startNodes(ctx context.Context, t *testing.T, r Running) {
	t.Helper()
	begun := time.Now()
	if err := cluster.StartAll(ctx, r.Cluster.Nodes); err != nil {
		t.Fatal(err)
	}
	Await(ctx, t, r.Service)
	t.Logf("%d nodes serve after %s", len(r.Cluster.Nodes), time.Since(begun).Round(time.Millisecond))
}

// Await returns when the service serves.
func Await(ctx context.Context, t *testing.T, s topology.Service) {
	t.Helper()
	if err := topology.Until(ctx, limit, s.Ready); err != nil {
		t.Fatalf("the service does not serve: %v", err)
	}
}

// Ask asks a node for a fact, and repeats a question that timed out: a busy machine makes a server slow, which says
// nothing about its state. Without an answer it fails the test.
func Ask(t *testing.T, s topology.Service, node, fact string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		v, err := s.Ask(ctx, node, fact)
		slow := net.Error(nil)
		switch {
		case err == nil:
			return v
		case ctx.Err() != nil || !errors.As(err, &slow) || !slow.Timeout():
			t.Fatalf("%s of %s: %v", fact, node, err)
		}
	}
}
