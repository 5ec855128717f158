package redis

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/redis/locks"
	"github.com/lockquake/lockquake/backends/redis/servers"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// TestTopologyParams: settings that the servers or the lock do not support are rejected, and the error names the key.
func TestTopologyParams(t *testing.T) {
	for _, c := range []struct {
		backend listed.Backend
		nodes   int
		text    string
		want    string // part of the error; "" for none
		lock    string
	}{
		{Sentinel(), 0, "", "", ""},
		{Sentinel(), 6, "down_after: 1s\nfailover_timeout: 3s\nmin_replicas_to_write: 1\npersistence: everysec\nwait: 2", "", ""},
		{Sentinel(), 3, "", "nodes", ""},
		{Sentinel(), 0, "down_after: 300", "down_after", ""},
		{Sentinel(), 0, "failover_timeout: 5ms", "failover_timeout", ""},
		{Sentinel(), 0, "min_replicas_to_write: 3", "min_replicas_to_write", ""},
		{Sentinel(), 0, "wait: 3", "wait is 3; it must be from 0 to 2", ""},
		{Sentinel(), 0, "wait: -1", "wait", ""},
		{Sentinel(), 0, "wait: 1\nwait_timeout: 2s", "wait_timeout", ""},
		{Sentinel(), 0, "wait_timeout: 0s", "wait_timeout", ""},
		{Sentinel(), 0, "persistence: some", "persistence", ""},
		{Sentinel(), 0, "node_timeout: 1s", "node_timeout", ""},
		{Cluster(), 0, "", "", ""},
		{Cluster(), 6, "node_timeout: 2s\npersistence: always\nwait: 1\nmin_replicas_to_write: 1", "", ""},
		{Cluster(), 3, "", "nodes", ""},
		{Cluster(), 0, "node_timeout: 500", "node_timeout", ""},
		{Cluster(), 0, "wait: 2", "wait", ""},
		{Cluster(), 0, "min_replicas_to_write: 2", "min_replicas_to_write is 2; it must be from 0 to 1", ""},
		{Cluster(), 0, "down_after: 1s", "down_after", ""},
		{Sentinel(), 0, "wait: 1", "", "set-px-incr"},
		{Sentinel(), 0, "wait: 1", "the lock redsync does not wait", "redsync"},
		{Cluster(), 0, "wait: 1", "the lock setnx does not wait", "setnx"},
		{Single(), 0, "wait: 1", "wait is 1, but there are no replicas", ""},
	} {
		_, err := c.backend.New(topology.Common{Nodes: c.nodes, TTL: time.Second, Lock: c.lock}, decoded(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %d nodes and %q: the error is %v; it should name %q", c.backend.Name, c.nodes, c.text, err, c.want)
		}
	}
}

// TestSpecs: each topology has six nodes that can be restarted; the cluster's have a port for each other.
func TestSpecs(t *testing.T) {
	for _, c := range []struct {
		backend listed.Backend
		names   string
	}{
		{Sentinel(), "redis-1 redis-2 redis-3 sentinel-1 sentinel-2 sentinel-3"},
		{Cluster(), "redis-1 redis-2 redis-3 redis-4 redis-5 redis-6"},
	} {
		top, err := c.backend.New(topology.Common{TTL: time.Second}, decoded(""))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range top.Specs() {
			names = append(names, s.Name)
			if !s.Restartable || s.Image != "redis" || s.Role != node.Server {
				t.Errorf("%s of %s: %+v", s.Name, c.backend.Name, s)
			}
		}
		if got := strings.Join(names, " "); got != c.names {
			t.Errorf("nodes of %s: %s", c.backend.Name, got)
		}
		facts := top.Service(nil).Facts()
		for _, fact := range []string{"serves", "role", "clock", "run-id", "holder:LOCK", "master", "link", "offset", "replication-lag", "replicas", "epoch", "flags"} {
			if facts[fact] == "" {
				t.Errorf("%s cannot be asked for %s", c.backend.Name, fact)
			}
		}
	}
}

// TestRecoveryAllowsForAFailover: locks of a topology with a failover have a longer recovery bound than those of one
// server.
func TestRecoveryAllowsForAFailover(t *testing.T) {
	for i, l := range locks.OneClient() {
		want := l.Bound(time.Minute, nil) + servers.FailoverTime
		for _, of := range []struct {
			b     listed.Backend
			usual time.Duration
		}{{Sentinel(), servers.SentinelDetection}, {Cluster(), servers.ClusterDetection}} {
			b, usual := of.b, of.usual
			if got := b.Locks[i].Bound(time.Minute, nil); b.Locks[i].Name != l.Name || got != want {
				t.Errorf("%s of %s: %s, not %s", l.Name, b.Name, got, want)
			}
			for _, detection := range []time.Duration{0, usual, 10 * time.Second} {
				p := access.LockDefaults()
				p.Detection = detection
				text, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := b.Locks[i].Bound(time.Minute, text), want+2*max(0, detection-usual); got != want {
					t.Errorf("%s of %s, where a dead server goes unnoticed for %s: %s, not %s", l.Name, b.Name, detection, got, want)
				}
			}
		}
	}
}

// decoded returns a function that decodes the text as scenarios do: strictly.
func decoded(text string) func(any) error {
	return func(into any) error {
		if text == "" {
			return nil // otherwise the library would empty the struct
		}
		return yaml.UnmarshalWithOptions([]byte(text), into, yaml.Strict())
	}
}
