package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/internal/tryout"
)

// sabotage is how a fault is kept from biting although whoever injects it is told that all went well. TestSabotage then demands the
// receipt not-installed, the verdict unknown and exit code 4.
type sabotage struct {
	// deaf names the agent's orders that are answered and not carried out: "filter", or "signal:STOP" for a signal. The fault is tried
	// on one server of etcd, with the keys that its kind names.
	deaf string
	// answer is what is answered, as JSON, where the fault looks at it.
	answer string
	// options takes the place of the scenario, where the trouble is staged by other means than a deaf agent.
	options *tryout.Options
	// test names the test that does all this by itself, where neither will do.
	test string
	// none says why there is nothing to sabotage.
	none string
}

// sabotages has an entry for every fault.
var sabotages = map[string]sabotage{
	"noop":       {none: "it does nothing"},
	"pause":      {deaf: "signal:STOP"},
	"freeze":     {deaf: "freeze"},
	"cpu-limit":  {deaf: "limit-cpu"},
	"kill":       {deaf: "signal:KILL"},
	"restart":    {deaf: "signal:KILL"},
	"stop":       {deaf: "signal:TERM"},
	"partition":  {deaf: "filter,filtered"},
	"hold-back":  {deaf: "filter,filtered"},
	"slow-disk":  {test: "TestSlowDisk"},
	"power-loss": {test: "TestAlonePowerLoss"},
	"delay":      {deaf: "filter,filtered"},
	"loss":       {deaf: "filter,filtered"},
	"duplicate":  {deaf: "filter,filtered"},
	"reorder":    {deaf: "filter,filtered"},
	"corrupt":    {deaf: "filter,filtered"},
	"rate":       {deaf: "filter,filtered"},
	"reset":      {deaf: "reset", answer: "0"},
	// The server's setting cannot be changed: it is stopped.
	"refuse-writes": {options: &tryout.Options{
		Backend: "redis", Entries: []tryout.Entry{
			{Fault: "pause", On: "redis-1", At: 500e6, For: 10e9}, {Fault: "refuse-writes", On: "redis-1", At: 1500e6, For: 1e9},
		},
		For: 12e9,
	}},
	// Nobody can be asked: all members are stopped.
	"compact": {options: &tryout.Options{
		Backend: "etcd", Entries: []tryout.Entry{
			{Fault: "pause", On: "all", At: 500e6, For: 10e9}, {Fault: "compact", On: "etcd-1", At: 1500e6},
		},
		For: 12e9,
	}},
	// The server cannot be filled: it is stopped.
	"maxmemory": {options: &tryout.Options{
		Backend: "redis", Entries: []tryout.Entry{
			{Fault: "pause", On: "redis-1", At: 500e6, For: 10e9}, {Fault: "maxmemory", On: "redis-1", At: 1500e6, For: 1e9},
		},
		For: 12e9,
	}},
	"exec": {deaf: "exec", answer: `{"code":0}`},
	// The answer of an agent that takes itself at its word.
	"clock-jump":  {deaf: "clock,clocked", answer: `{"processes":1,"offset":60000000000,"how":"it says"}`},
	"clock-drift": {deaf: "clock,clocked", answer: `{"processes":1,"gain":0.5,"how":"it says"}`},
	"clock-stop":  {deaf: "signal:STOP"},
	// The replica answers OK and then waits for its primary, which is stopped; nobody takes that one for dead.
	"failover": {options: &tryout.Options{
		Backend: "rediscluster", Set: "node_timeout: 30s",
		Entries: []tryout.Entry{
			{Fault: "pause", On: "redis-1", At: 500e6, For: 12e9}, {Fault: "failover", On: "redis-4", At: 1e9},
		},
		For: 14e9,
	}},
}

// TestEveryFaultIsSabotaged fails when a fault has no entry, or one that leads nowhere.
func TestEveryFaultIsSabotaged(t *testing.T) {
	known := map[string]bool{}
	for _, k := range faults.Kinds() {
		known[k.Name] = true
		s, ok := sabotages[k.Name]
		if !ok {
			t.Errorf("fault %s: no test shows that it does not count when it did not bite; add it to sabotages", k.Name)
			continue
		}
		ways := 0
		for _, has := range []bool{s.deaf != "", s.options != nil, s.test != "", s.none != ""} {
			if has {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("fault %s: %d ways to sabotage it; want one", k.Name, ways)
		}
		if s.test != "" && !isTest(t, s.test) {
			t.Errorf("fault %s: there is no test %s", k.Name, s.test)
		}
	}
	for name := range sabotages {
		if !known[name] {
			t.Errorf("there is no fault %s to sabotage", name)
		}
	}
}

// isTest tells whether any test file of the tree has a test of that name.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || found || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		found = strings.Contains(string(b), "func "+name+"(t *testing.T)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
