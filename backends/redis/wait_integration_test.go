//go:build integration

package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/lock"
)

// TestWaitForReplicas asks real replicas for each grant, and ends them: then nothing is granted, and no key is left.
func TestWaitForReplicas(t *testing.T) {
	for _, b := range []listed.Backend{Sentinel(), Cluster()} {
		t.Run(b.Name, func(t *testing.T) {
			r := servers.Start(t, servers.Options{
				Backend: b, Lock: "set-px-lua", TTL: time.Second, Run: "wait" + b.Name[:6],
				Decode: func(into any) error {
					switch p := into.(type) {
					case *SentinelParams:
						p.Wait = 1
					case *ClusterParams:
						p.Wait = 1
					}
					return nil
				},
			})
			users := map[string]lock.Locker{}
			for _, name := range waiting() {
				l, _ := b.Lock(name)
				users[name] = userOn(t, r, l)
				g, err := try(t, users[name])
				if err != nil {
					t.Fatalf("%s with its replicas: %v", name, err)
				}
				if err := users[name].Release(t.Context(), g); err != nil {
					t.Fatal(err)
				}
			}
			primaries := endReplicas(t, r)
			for name, u := range users {
				if g, err := try(t, u); !errors.Is(err, lock.ErrRefused) {
					t.Errorf("%s without replicas: %+v, %v", name, g, err)
				}
				for _, p := range primaries {
					if v, err := r.Service.Ask(t.Context(), p, "holder:a"); err != nil || v != "none" {
						t.Errorf("%s: %s still has the key of %s, %v", name, p, v, err)
					}
				}
			}
		})
	}
}

// endReplicas ends every replica's server and returns the names of the primaries.
func endReplicas(t *testing.T, r servers.Running) (primaries []string) {
	t.Helper()
	for _, n := range r.Cluster.Nodes {
		if n.Address(Port) == "" {
			continue // a Sentinel
		}
		role, err := r.Service.Ask(t.Context(), n.Name(), "role")
		if err != nil {
			t.Fatal(err)
		}
		if role == "master" {
			primaries = append(primaries, n.Name())
			continue
		}
		m := newMember(n, seen{port: Port, timeout: time.Second})
		defer m.client.Close()
		_ = m.client.ShutdownNoSave(t.Context()) // the server ends instead of answering
		select {
		case <-n.Exited():
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is still there 10s after SHUTDOWN", n.Name())
		}
	}
	return primaries
}
