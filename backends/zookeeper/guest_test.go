package zookeeper

import (
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// TestNodesAreBelowThePrefix: every node that the package creates in an external ensemble is below the path.
func TestNodesAreBelowThePrefix(t *testing.T) {
	k := keyspace("/bench/r1/")
	if root := k.root(); root != "/bench/r1" {
		t.Errorf("the root is %q", root)
	}
	for _, name := range []string{"stock", "a/b", "../x"} {
		if path := k.parent(name); !strings.HasPrefix(path, "/bench/r1/") || strings.Count(path, "/") != 3 {
			t.Errorf("lock %s is kept at %q", name, path)
		}
	}
}

// TestPrefixes: a prefix that is not a path of the run's own is rejected.
func TestPrefixes(t *testing.T) {
	p := Params{TickTime: 2 * time.Second, SyncLimit: 5}
	for under, ok := range map[string]bool{"/bench/": true, "/a/b/": true, "/bench": false, "bench/": false, "//": false, "/zookeeper/x/": false, "/a//b/": false} {
		if err := checkGuest(topology.Common{Attached: &topology.Attached{Under: under}}, p); (err == nil) != ok {
			t.Errorf("%s: %v", under, err)
		}
	}
	if err := checkGuest(topology.Common{Attached: &topology.Attached{Under: "/bench/"}}, Params{TickTime: time.Second}); err == nil {
		t.Error("an ensemble is taken whose syncLimit nobody told")
	}
}
