// Package servers is the provider's side of Redis: its topologies, and how their servers are started, queried and
// reset.
package servers

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// syncing are the keys with which a server writes its data to disk.
const syncing = "persistence: everysec"

// build makes a topology from a scenario.
type build = func(c topology.Common, decode func(into any) error) (topology.Topology, error)

// maker returns the Maker of a topology, with the fields that all topologies of Redis share.
func maker(profile int, make build, ports ...string) topology.Maker {
	return topology.Maker{
		Profile: profile, Attachable: ports, Syncing: syncing, OneThread: true, Health: health,
		New: make,
	}
}

// with returns the build of a topology that knows its locks.
func with(list locks, make func(locks, topology.Common, func(any) error) (topology.Topology, error)) build {
	return func(c topology.Common, decode func(any) error) (topology.Topology, error) {
		return make(list, c, decode)
	}
}

// health returns a command that checks one node.
func health(port int) []string {
	return []string{"CMD-SHELL", fmt.Sprintf("redis-cli -p %d ping | grep -q PONG", port)}
}

// persistence is the server's command line for each policy.
var persistence = map[string][]string{
	"none":     {"--save", "", "--appendonly", "no"},
	"snapshot": {"--save", "1 1", "--appendonly", "no"},
	// Redis' own save points. The first is an hour away, so in practice only a graceful stop writes the data.
	"save-points": {"--save", "3600 1 300 100 60 10000", "--appendonly", "no"},
	"everysec":    {"--save", "", "--appendonly", "yes", "--appendfsync", "everysec"},
	"always":      {"--save", "", "--appendonly", "yes", "--appendfsync", "always"},
}

// syncThreads returns the name prefixes of the threads that only sync a server's data. With "always" the main thread
// syncs, which does everything else as well.
func syncThreads(policy string) []string {
	if policy == "everysec" {
		return []string{"bio_aof"}
	}
	return nil
}

// durable is the key with which a restarted server knows everything that it has acknowledged.
const durable = "persistence: always"

func checkPersistence(policy string) error {
	if _, ok := persistence[policy]; !ok {
		return fmt.Errorf("persistence is %q; it must be none, snapshot, save-points, everysec or always", policy)
	}
	return nil
}

// secret returns the part of a server's configuration that must stay private: its password, which it also uses to
// follow a primary.
func secret(password string) string {
	return "requirepass " + password + "\nmasterauth " + password + "\n"
}

// command returns the argv of a server that is reached at address. The secret is included rather than written to the
// main config file. Sentinels would make the server rewrite that file, and a restarted server would follow the
// primary named in it.
func command(place node.Place, address, policy string) []string {
	host, port := splitAddress(address)
	argv := []string{
		"redis-server", "--port", port, "--bind", node.ListenOn(host), "--protected-mode", "no", "--daemonize", "no",
		"--dir", place.Dir,
	}
	if place.Secret != "" {
		argv = append(argv, "--include", place.Secret)
	}
	return append(argv, persistence[policy]...)
}

// Store returns a Redis server that is not a lock service but the resource that a lock protects, with this package's
// image and settings. It keeps everything in memory.
func Store(name string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Resource, Image: "redis",
		Ports:   []node.Port{{Name: access.Port, Number: 6379}},
		Secret:  secret,
		Command: func(p node.Place) []string { return command(p, p.Address(name, access.Port), "none") },
	}
}

// independent returns a server that does not know the others.
func independent(name, persistence string, delay time.Duration) node.Spec {
	spec := dataNode(name, func(p node.Place) []string { return command(p, p.Address(name, access.Port), persistence) })
	spec.SyncThreads, spec.RestartDelay = syncThreads(persistence), delay
	return spec
}

// dataNode returns a server that keeps keys.
func dataNode(name string, argv func(node.Place) []string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Server, Image: "redis", Restartable: true,
		Ports: []node.Port{{Name: access.Port, Number: 6379}}, Secret: secret, Command: argv,
	}
}

// The values of `restart`.
const (
	restartImmediate = "immediate"
	restartDelayed   = "delayed"
)

func checkRestart(policy string) error {
	if policy != restartImmediate && policy != restartDelayed {
		return fmt.Errorf("restart is %q; it must be %s or %s", policy, restartImmediate, restartDelayed)
	}
	return nil
}

// restartMargin is how much longer than a TTL a delayed server stays down: a command may still have been on its way
// when the server ended.
const restartMargin = 500 * time.Millisecond

// restartDelay returns how long a server that ended waits before it restarts. With "delayed" that is longer than the
// life of any key that it may have forgotten (redis.io, "Distributed Locks with Redis", "Performance, crash recovery
// and fsync").
func restartDelay(policy string, ttl time.Duration) time.Duration {
	if policy == restartDelayed {
		return ttl + restartMargin
	}
	return 0
}

func serverName(i int) string { return "redis-" + strconv.Itoa(i+1) }

// splitAddress splits "host:port"; anything else is a host on the standard port.
func splitAddress(address string) (host, port string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, "6379"
	}
	return host, port
}

// FailoverTime is what a failover may add to the recovery time of a lock. 1.2 to 1.5 s were measured for Sentinel,
// and about as much for Redis Cluster if the first vote decides.
const FailoverTime = 3 * time.Second
