package servers

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/node"
)

// has reports whether an argv contains the words one after another.
func has(argv []string, words ...string) bool {
	for i := range argv {
		if i+len(words) <= len(argv) && slices.Equal(argv[i:i+len(words)], words) {
			return true
		}
	}
	return false
}

// TestCommandLines checks the required words of each node's command line.
func TestCommandLines(t *testing.T) {
	place := node.Place{Dir: "/data", Secret: "/secret"}
	sp := sentinelDefaults()
	sp.MinReplicas, sp.Persistence = 1, "always"
	data := sentinel{params: sp}.server(place, "127.0.0.1:21000")
	cp := clusterDefaults()
	cp.MinReplicas = 1
	shard := sharded{params: cp}.server(place, "10.1.2.13:6379", "10.1.2.13:16379")
	for _, c := range []struct {
		argv  []string
		words []string
	}{
		{data, []string{"redis-server", "--port", "21000"}},
		{data, []string{"--dir", "/data"}},
		{data, []string{"--include", "/secret"}},
		{data, []string{"--bind", "127.0.0.1"}},
		{shard, []string{"--include", "/secret"}},
		{shard, []string{"--bind", "0.0.0.0"}},
		{data, []string{"--appendfsync", "always"}},
		{data, []string{"--replica-announce-ip", "127.0.0.1", "--replica-announce-port", "21000"}},
		{data, []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}},
		{data, []string{"--repl-diskless-sync-delay", "0"}},
		{shard, []string{"redis-server", "--port", "6379"}},
		{shard, []string{"--cluster-enabled", "yes"}},
		{shard, []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}},
		{shard, []string{"--cluster-node-timeout", "500"}},
		{shard, []string{"--cluster-replica-validity-factor", "300"}},
		{shard, []string{"--cluster-port", "16379"}},
		{shard, []string{"--cluster-announce-ip", "10.1.2.13", "--cluster-announce-port", "6379", "--cluster-announce-bus-port", "16379"}},
		{shard, []string{"--repl-ping-replica-period", "1"}},
	} {
		if !has(c.argv, c.words...) {
			t.Errorf("%q is not in %q", c.words, c.argv)
		}
	}
	if slices.Contains(data, "--replicaof") {
		t.Error("a restarted server would follow whoever was the primary when the run began")
	}
	argv := watch(place, "127.0.0.1:22000")
	if !has(argv, "sh", "-c") || argv[3] != "/data/sentinel.conf" || argv[5] != "/secret" || !strings.Contains(argv[4], "bind 127.0.0.1\n") || !strings.Contains(argv[2], `exec redis-server "$0" --sentinel`) ||
		!strings.Contains(argv[4], "sentinel announce-port 22000\n") && !strings.HasSuffix(argv[4], "sentinel announce-port 22000") {
		t.Errorf("a Sentinel's command line: %q", argv)
	}
}
