package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/scenarios"
)

// aimedAt returns a scenario with a chaos section, ready to be checked.
func aimedAt(t *testing.T, backend, chaos string) scenarios.Scenario {
	t.Helper()
	s, err := scenarios.Parse(fmt.Appendf(nil, `
name: aimed
claim: Faults are aimed at what is there.
backend: {use: %s}
workload: {use: counter, clients: 2, hold: 5ms, resource: {use: register}}
chaos: %s
run: {for: 60s, seed: 5}
`, backend, chaos), "aimed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestImpossibleTargetsAreRefused: targets on which a fault can never act are refused, in a schedule, alone or as one
// of several drawn from.
func TestImpossibleTargetsAreRefused(t *testing.T) {
	const several = "failover has one target at a time, and "
	for _, c := range []struct{ backend, chaos, want string }{
		{"etcd", "[{use: failover, on: all, at: 1s}]", several + "all is 3 of 3 servers; write leader, one, or the name of one server"},
		{"etcd", "[{use: failover, on: [etcd-1, etcd-2], at: 1s}]", several + "etcd-1, etcd-2 are 2 nodes"},
		{"zookeeper", "[{use: failover, on: followers, at: 1s}]", several + "followers are more than one of 3 servers"},
		{"rediscluster", "[{use: failover, on: minority, at: 1s}]", several + "minority is 2 of 6 servers; write leader(LOCK)"},
		{"etcd", "{random: [pause, {use: failover, on: [leader, majority]}]}", several + "majority is 2 of 3 servers"},
		{"etcd", "{random: [pause, failover], on: [all, majority]}", "there is no target here for failover"},
		{"rediscluster", "[{use: pause, on: leader, at: 1s, for: 1s}]", "write leader(LOCK), such as leader(lock-0)"},
		{"redlock", "[{use: pause, on: leader, at: 1s, for: 1s}]", "leader can never be found: the servers of redlock are independent"},
		{"redlock", "[{use: pause, on: leader(lock-0), at: 1s, for: 1s}]", "can never be found"},
		{"redlock", "{random: [pause], on: leader}", "there is no target here for pause"},
	} {
		_, err := engine.Check(engine.Options{Request: engine.Request{Scenario: aimedAt(t, c.backend, c.chaos), Provider: generous{}, Catalog: nodes.Catalog()}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v, want %q", c.backend, c.chaos, err, c.want)
		}
	}
}

// TestADrawIsAimedAtWhatCanBeHit: if a schedule names targets for all its faults, each fault is drawn only on those
// where it can act.
func TestADrawIsAimedAtWhatCanBeHit(t *testing.T) {
	for _, c := range []struct {
		backend, chaos string
		want           map[string]string // by fault: the targets drawn, in order
	}{
		{"etcd", "{random: [pause, failover], on: [leader, all], for: 100ms, mean_gap: 1s}", map[string]string{"pause": "all leader", "failover": "leader"}},
		{"rediscluster", "{random: [pause, failover], on: [leader, leader(lock-0), all], for: 100ms, mean_gap: 1s}", map[string]string{
			"pause": "all leader(lock-0)", "failover": "leader(lock-0)",
		}},
		{"redlock", "{random: [pause], on: [leader, all], for: 100ms, mean_gap: 1s}", map[string]string{"pause": "all"}},
		{"postgres", "{random: [pause], on: [leader, all], for: 100ms, mean_gap: 1s}", map[string]string{"pause": "all leader"}},
	} {
		schedule, _ := dryRun(t, aimedAt(t, c.backend, c.chaos))
		for fault, want := range c.want {
			seen := map[string]bool{}
			for _, x := range schedule {
				if x["fault"] == fault {
					seen[fmt.Sprint(x["on"])] = true
				}
			}
			if got := strings.Join(slices.Sorted(maps.Keys(seen)), " "); got != want {
				t.Errorf("%s with %s: %s is drawn on %q, want %q\n%v", c.backend, c.chaos, fault, got, want, schedule[0])
			}
		}
	}
}
