package suite

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/stories/ask"
	"github.com/lockquake/lockquake/scenarios"
)

// TestAsked makes the stories of a lock that lockquake does not have: it can read each as a scenario.
func TestAsked(t *testing.T) {
	t.Parallel()
	points := []string{"before-lock", "half-way", "lock-done", "before-unlock", "unlock-done"}
	for _, c := range []struct {
		backend, lock string
		tokens        bool // the lock that stands in has tokens
	}{
		{"redis", "set-px-lua", false},
		{"redlock", "redlock", false},
		{"rediscluster", "set-px-lua", false},
		{"sentinel", "set-px-lua", false},
		{"etcd", "mutex", true},
		{"zookeeper", "sequential", true},
		{"postgres", "lease", true},
	} {
		list, err := Asked(ask.Lock{
			Backend: c.backend, StandIn: c.lock, TTL: 2 * time.Second, Recovery: ask.Recovery{TTLs: 1},
			Offers: backends.Offers{Token: backends.TokenNone, Expires: true, Renewal: "call"}, Points: points, Clients: 3, Users: 4,
		}, "locktest-", all.All())
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		for _, x := range list {
			if point, ok := strings.CutPrefix(x.Name, "crash-"); ok && point != "half-way" {
				t.Errorf("%s, %s: this is no point in the middle of an acquire", c.backend, x.Name)
			}
			if (x.Why == "") != (x.Scenario != "") || x.Error != "" {
				t.Errorf("%s: %+v", c.backend, x)
			}
			if x.Scenario == "" {
				continue
			}
			got, err := scenarios.Parse([]byte(x.Scenario), x.Name)
			if err != nil {
				t.Errorf("%s, %s: %v\n%s", c.backend, x.Name, err, x.Scenario)
				continue
			}
			read++
			if strings.Contains(x.Scenario, "token_regressions") != c.tokens {
				t.Errorf("%s, %s: of a lock without tokens it expects\n%s", c.backend, x.Name, x.Scenario)
			}
			ownTTL := strings.Contains(x.Name, "-ttl")
			if got.Backend.Use != c.backend || got.Backend.Lock != c.lock || (got.Backend.TTL == 2*time.Second) == ownTTL ||
				got.Name != "locktest-"+x.Name || len(got.Steps) == 0 && got.Workload.Use == "" {
				t.Errorf("%s, %s: %+v", c.backend, x.Name, got)
			}
		}
		if read < 20 {
			t.Errorf("%s: %d stories apply", c.backend, read)
		}
	}
}

// TestAskedWithout has stories that do not apply, or that apply because of what the service is.
func TestAskedWithout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		story  string
		lock   ask.Lock
		offers backends.Offers
		want   string
	}{
		{"late-release", ask.Lock{Backend: "redis"}, backends.Offers{}, "have no expiry"},
		{"late-renewal", ask.Lock{Backend: "redis"}, backends.Offers{Expires: true, Renewal: "background"}, "cannot be renewed by a call"},
		{"leader-crash", ask.Lock{Backend: "redis"}, backends.Offers{}, "no server takes over"},
		{"server-pauses", ask.Lock{Backend: "sentinel"}, backends.Offers{}, "may lack its grants"},
		{"crash", ask.Lock{Backend: "redis"}, backends.Offers{}, ""},
	} {
		c.lock.Offers, c.lock.TTL = c.offers, 2*time.Second
		list, err := Asked(c.lock, "", all.All())
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, x := range list {
			if x.Name != c.story {
				continue
			}
			if found = true; (x.Why == "") != (c.want == "") || !strings.Contains(x.Why, c.want) {
				t.Errorf("%s for %s: %q, want %q", c.story, c.lock.Backend, x.Why, c.want)
			}
		}
		if !found {
			t.Errorf("there is no story %s", c.story)
		}
	}
	for _, c := range []struct {
		lock ask.Lock
		wall bool // a wall clock ends the grants of the service
	}{
		{ask.Lock{Backend: "redis"}, true},
		{ask.Lock{Backend: "etcd"}, false},
		{ask.Lock{Backend: "etcd", Set: []string{"version=3.4"}}, true},
	} {
		c.lock.Offers, c.lock.TTL = backends.Offers{Expires: true, Token: backends.TokenService}, 2*time.Second
		list, err := Asked(c.lock, "", all.All())
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if x.Name == "server-clock" && strings.Contains(x.Scenario, `double_grants: "0"`) == c.wall {
				t.Errorf("%s %v, whose wall clock ends grants %v:\n%s", c.lock.Backend, c.lock.Set, c.wall, x.Scenario)
			}
		}
	}
	for _, wrong := range []ask.Lock{{Backend: "nothing"}, {Backend: "redis", StandIn: "*"}, {Backend: "redis", StandIn: "nosuch"}} {
		if _, err := Asked(wrong, "", all.All()); !errors.Is(err, ErrNoLock) {
			t.Errorf("%s/%s: %v", wrong.Backend, wrong.StandIn, err)
		}
	}
}
