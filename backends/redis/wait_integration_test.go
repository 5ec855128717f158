//go:build integration

package redis

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// TestWaitForReplicas requires real replicas for each grant, and ends them: then nothing is granted, and no key is
// left.
func TestWaitForReplicas(t *testing.T) {
	for _, b := range []listed.Backend{Sentinel(), Cluster()} {
		t.Run(b.Name, func(t *testing.T) {
			r := servers.Start(t, servers.Options{
				Backend: b, Lock: "set-px-lua", TTL: time.Second, Run: "wait" + b.Name[:6],
				Decode: calm,
			})
			with, without := waitingFor(t, r, patience/2), waitingFor(t, r, 100*time.Millisecond) // enough for an acknowledgement; how long each lock waits in vain
			hasty := map[string]lock.Locker{}
			for _, name := range waiting(b) {
				l := lockOf(t, b, name)
				u := userOn(t, with, l)
				g, err := try(t, u)
				if err != nil {
					t.Fatalf("%s with its replicas: %v", name, err)
				}
				if err := u.Release(t.Context(), g); err != nil {
					t.Fatal(err)
				}
				hasty[name] = userOn(t, without, l)
				if g, err := try(t, hasty[name]); err == nil { // it is connected already: a dead replica is no place to start from
					_ = hasty[name].Release(t.Context(), g)
				}
			}
			primaries := endReplicas(t, r)
			for name, u := range hasty {
				if g, err := try(t, u); !errors.Is(err, lock.ErrRefused) {
					t.Errorf("%s without replicas: %+v, %v", name, g, err)
				}
				for _, p := range primaries {
					if v := servers.Ask(t, r.Service, p, "holder:a"); v != "none" {
						t.Errorf("%s: %s still has the key of %s", name, p, v)
					}
				}
			}
		})
	}
}

// patience is the users' timeout for a command on a busy machine.
const patience = 10 * time.Second

// waiting returns the locks that wait for replicas.
func waiting(b listed.Backend) (names []string) {
	for _, l := range b.Locks {
		if l.Waits {
			names = append(names, l.Name)
		}
	}
	return names
}

func try(t *testing.T, u lock.Locker) (lock.Grant, error) {
	t.Helper()
	return u.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second})
}

// waitingFor returns a service whose users wait up to d for one replica.
func waitingFor(t *testing.T, r servers.Running, d time.Duration) servers.Running {
	t.Helper()
	p := access.LockDefaults()
	err := backends.DecodeParams(r.Access.Params, &p)
	if err != nil {
		t.Fatal(err)
	}
	p.Timeout, p.Wait, p.WaitTimeout = patience, 1, d
	if r.Access.Params, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	return r
}

// endReplicas ends every replica and returns the names of the primaries.
func endReplicas(t *testing.T, r servers.Running) (primaries []string) {
	t.Helper()
	for _, n := range r.Cluster.Nodes {
		if n.Address(access.Port) == "" {
			continue // a Sentinel
		}
		if servers.Ask(t, r.Service, n.Name(), "role") == "master" {
			primaries = append(primaries, n.Name())
			continue
		}
		end(t, r, n.Name())
	}
	return primaries
}
