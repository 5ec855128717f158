package main

import (
	"path"
	"strings"
)

// Target is a lock that a hunt is sent after.
type Target struct {
	Name string
	Args []string // of hunt: the lock, and what is set
	Goal string   // the count to reach
	// Nothing says that nothing is expected: the whole budget is searched, once, by the guided arm alone.
	Nothing bool
	// Memory says that the lock runs within the process, where runs are short: its budget is capped.
	Memory bool
	// Good are the arguments of the version without the bug, on which the script that was found must show nothing.
	Good []string
}

const bugs = "examples/library-bugs/"

// recipeAlone leaves out what breaks every lock on one Redis: its keys are lost, or end early.
var recipeAlone = []string{"--without-fault", "restart,kill,stop,maxmemory,power-loss,clock-jump,clock-drift"}

// targets are all of them, in the order in which they are tried.
func targets() []Target {
	out := []Target{
		lock("redis", "get-then-del", "double_grants", recipeAlone...),
		lock("redis", "set-px-del", "double_grants", recipeAlone...),
		lock("redis", "weak-owner", "foreign_releases", recipeAlone...),
		lock("redis", "setnx-expire", "stuck_locks"),
		lock("redis", "stubborn", "deaf_waits"),
		lock("redis", "resends", "double_grants", recipeAlone...),
		lock("redis", "counts-twice", "false_results"),
		lock("sentinel", "set-px-lua", "double_grants"),
		named("redlock restarts without persistence", lock("redlock", "redlock", "double_grants",
			"--fault", "kill,restart,stop")),
		named("redlock clock jump", lock("redlock", "redlock", "double_grants", "--fault", "clock-jump,clock-drift")),
		lock("etcd", "mutex", "overlapping_holds"),

		pair("redsync 4.0.3", "redis", "../../clients/go/redsync", "github.com/go-redsync/redsync/v4@v4.0.3",
			"github.com/go-redsync/redsync/v4@v4.0.4", "false_results"),
		pair("redsync 4.6.0", "redis", "redsync", "github.com/go-redsync/redsync/v4@v4.6.0",
			"github.com/go-redsync/redsync/v4@v4.7.1", "orphans"),
		pair("redsync 1.2.0", "redis", "redsync1", "github.com/go-redsync/redsync@v1.2.0",
			"github.com/go-redsync/redsync@v1.3.0", "false_results"),
		pair("redsync 4.12.0 on five", "redlock", "redsync", "github.com/go-redsync/redsync/v4@v4.12.0",
			"github.com/go-redsync/redsync/v4@v4.12.1", "double_grants", recipeAlone...),
		pair("redis-lock 7.0.0", "redis", "redis-lock", "github.com/bsm/redis-lock@v7.0.0+incompatible",
			"github.com/bsm/redis-lock@v8.0.0+incompatible", "false_results"),
		pair("go-zero 1.3.1", "redis", "gozero", "github.com/zeromicro/go-zero@v1.3.1",
			"github.com/zeromicro/go-zero@v1.3.2", "double_grants", recipeAlone...),
		pair("rueidislock 1.0.69", "redis", "rueidislock", "github.com/redis/rueidis@v1.0.69",
			"github.com/redis/rueidis@v1.0.70", "double_grants", append([]string{"--lock", "rueidislock"},
				recipeAlone...)...),
		// a holder that is late overlaps with the next one by any lock; this one is told that it holds what it lost
		folders("etcd 3.4.13", "etcd", "etcd34", "etcd35", "false_results"),
		folders("etcd 3.0.17 RWMutex", "etcd", "etcdrw30", "etcdrw31", "stuck_locks"),
	}
	for _, m := range []struct{ lock, goal string }{
		{"never-excludes", "double_grants"},
		{"expires-early", "double_grants"},
		{"cuts-ttl", "double_grants"},
		{"forgets-renewals", "double_grants"},
		{"reuses-tokens", "token_regressions"},
		{"falling-tokens", "token_regressions"},
		{"frees-foreign", "foreign_releases"},
		{"never-expires", "stuck_locks"},
		{"never-refuses", "false_results"},
		{"keeps-released", "orphans"},
		{"denies-renewals", "false_results"},
		{"grants-to-nobody", "orphans"},
		{"deaf", "deaf_waits"},
		{"loses-wakeups", "stuck_locks"},
	} {
		t := lock("memory", m.lock, m.goal)
		t.Memory = true
		if m.lock == "cuts-ttl" { // to whole seconds
			t.Args = append(t.Args, "--ttl", "1500ms")
		}
		out = append(out, t)
	}
	for _, t := range []Target{
		named("zookeeper/sequential keeps its word", lock("zookeeper", "sequential", "double_grants")),
		named("etcd/mutex keeps its word", lock("etcd", "mutex", "double_grants")),
		named("redlock with delayed restarts", lock("redlock", "redlock", "double_grants", "--set",
			"backend.restart=delayed", "--fault", "pause,freeze,kill,stop,partition,delay,loss")),
	} {
		t.Nothing = true
		out = append(out, t)
	}
	return out
}

func lock(backend, name, goal string, more ...string) Target {
	return Target{
		Name: backend + "/" + name, Goal: goal,
		Args: append([]string{"--backend", backend, "--lock", name}, more...),
	}
}

func named(name string, t Target) Target { t.Name = name; return t }

// pair is a library in a version with a bug, beside the one that mends it.
func pair(name, backend, folder, bad, good, goal string, more ...string) Target {
	folder = path.Join(bugs, folder)
	return client(name, backend, folder+" "+bad, folder+" "+good, goal, more...)
}

// folders is a pair whose versions are built in folders of their own.
func folders(name, backend, bad, good, goal string) Target {
	return client(name, backend, bugs+bad, bugs+good, goal)
}

func client(name, backend, bad, good, goal string, more ...string) Target {
	return Target{
		Name: name, Goal: goal, Args: append([]string{"--backend", backend, "--client", bad}, more...),
		Good: []string{"--client", good},
	}
}

// ID names the target in the record and in file names.
func (t Target) ID() string { return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name) }
