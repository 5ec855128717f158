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

// sabotage describes how a fault is kept from acting although the injection reports success. TestSabotage then demands
// the receipt not-installed, the verdict unknown and exit code 4.
type sabotage struct {
	// deaf names the agent's orders that are acknowledged but not carried out: "filter", or "signal:STOP" for a
	// signal. The fault is tried on one etcd server, with the keys that its kind names.
	deaf string
	// answer is the acknowledgement as JSON, for faults that examine it.
	answer string
	// options replaces the scenario if something other than a deaf agent keeps the fault from acting.
	options *tryout.Options
	// test names a separate test, for faults that neither can sabotage.
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
	// The server is stopped, so its setting cannot be changed.
	"refuse-writes": {options: &tryout.Options{
		Backend: "redis", Entries: []tryout.Entry{
			{Fault: "pause", On: "redis-1", At: 500e6, For: 10e9}, {Fault: "refuse-writes", On: "redis-1", At: 1500e6, For: 1e9},
		},
		For: 12e9,
	}},
	// All members are stopped, so none can be asked.
	"compact": {options: &tryout.Options{
		Backend: "etcd", Entries: []tryout.Entry{
			{Fault: "pause", On: "all", At: 500e6, For: 10e9}, {Fault: "compact", On: "etcd-1", At: 1500e6},
		},
		For: 12e9,
	}},
	// The server is stopped, so it cannot be filled.
	"maxmemory": {options: &tryout.Options{
		Backend: "redis", Entries: []tryout.Entry{
			{Fault: "pause", On: "redis-1", At: 500e6, For: 10e9}, {Fault: "maxmemory", On: "redis-1", At: 1500e6, For: 1e9},
		},
		For: 12e9,
	}},
	"exec": {deaf: "exec", answer: `{"code":0}`},
	// An agent that trusts its own order.
	"clock-jump":  {deaf: "clock,clocked", answer: `{"processes":1,"offset":60000000000,"how":"it says"}`},
	"clock-drift": {deaf: "clock,clocked", answer: `{"processes":1,"gain":0.5,"how":"it says"}`},
	"clock-stop":  {deaf: "signal:STOP"},
	// The replica answers OK and then waits for its primary, which is stopped but not taken for dead.
	"failover": {options: &tryout.Options{
		Backend: "rediscluster", Set: "node_timeout: 30s",
		Entries: []tryout.Entry{
			{Fault: "pause", On: "redis-1", At: 500e6, For: 12e9}, {Fault: "failover", On: "redis-4", At: 1e9},
		},
		For: 14e9,
	}},
}

// TestEveryFaultIsSabotaged fails if a fault has no entry, or an entry without effect.
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

// isTest reports whether a test file of the tree has a test of that name.
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
