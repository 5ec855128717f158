//go:build integration

package conformance

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
)

// ProviderEnv names the provider that conformance runs use: docker, local, or auto (the default).
const ProviderEnv = "LOCKQUAKE_TEST_PROVIDER"

// StartOptions says what service is to be brought up.
type StartOptions struct {
	Backend backends.Backend
	Lock    string
	TTL     time.Duration
	Run     string // id of the run, [a-z0-9]+, at most 10 bytes
	// Decode fills the backend's own parameters; nil leaves the defaults.
	Decode func(into any) error
}

// Running is a service that serves.
type Running struct {
	Access  backends.Access
	Service backends.Service
	Cluster *cluster.Cluster
}

// Start brings a real service up for the time of a test and returns when it serves.
func Start(t *testing.T, o StartOptions) Running {
	t.Helper()
	if o.Decode == nil {
		o.Decode = func(any) error { return nil }
	}
	topology, err := o.Backend.New(backends.Common{TTL: o.TTL, Lock: o.Lock}, o.Decode)
	if err != nil {
		t.Fatal(err)
	}
	provider := chooseProvider(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := provider.Open(ctx, cluster.Request{Run: o.Run, Specs: topology.Specs(), LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	r := Running{
		Access:  backends.Access{Backend: o.Backend.Name, Lock: o.Lock, TTL: o.TTL, Run: o.Run},
		Service: topology.Service(c.Nodes),
		Cluster: c,
	}
	t.Cleanup(func() { _ = r.Service.Close() })
	if r.Access.Params, err = json.Marshal(topology.Params()); err != nil {
		t.Fatal(err)
	}
	startNodes(ctx, t, &r, topology.Specs())
	return r
}

func chooseProvider(t *testing.T) cluster.Provider {
	t.Helper()
	self := os.Getenv("LOCKQUAKE_BIN")
	if self == "" { // the test's own binary, whose TestMain knows the verbs that nodes need
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		self = exe
	}
	p, reason, err := cluster.Choose(t.Context(), os.Getenv(ProviderEnv), cluster.ChooseOptions{Self: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("provider %s: %s", p.Name(), reason)
	return p
}

// startNodes starts all nodes side by side.
func startNodes(ctx context.Context, t *testing.T, r *Running, specs []cluster.Spec) {
	t.Helper()
	begun := time.Now()
	group, gctx := errgroup.WithContext(ctx)
	for i, n := range r.Cluster.Nodes {
		group.Go(func() error { return n.Start(gctx) })
		e := backends.Endpoint{Name: n.Name(), Addresses: map[string]string{}}
		for _, p := range specs[i].Ports {
			e.Addresses[p.Name] = n.Address(p.Name)
		}
		r.Access.Nodes = append(r.Access.Nodes, e)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	Await(ctx, t, r.Service)
	t.Logf("%d nodes serve after %s", len(r.Cluster.Nodes), time.Since(begun).Round(time.Millisecond))
}

// Await returns when the service serves.
func Await(ctx context.Context, t *testing.T, s backends.Service) {
	t.Helper()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := s.Ready(attempt)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the service does not serve: %v", err)
		}
		clock.Sleep(ctx, 50*time.Millisecond)
	}
}
