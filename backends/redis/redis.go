// Package redis is Redis as a lock service: its topologies and the locks that run on them, one file each.
package redis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// Port is the name of the port that clients use.
const Port = "client"

// Backends returns all topologies of Redis. Each has the same locks; only where there is no single client for all of its
// servers are there others.
func Backends() []listed.Backend {
	return []listed.Backend{Single(), Sentinel(), Cluster(), Five()}
}

// syncing are the keys with which a server writes what it is told to disk.
const syncing = "persistence: everysec"

// health asks the node by itself.
func health(port int) []string {
	return []string{"CMD-SHELL", fmt.Sprintf("redis-cli -p %d ping | grep -q PONG", port)}
}

// locks lists the locks that work through one client, whatever topology that reaches. The first is the default.
func locks() []backends.Lock {
	return []backends.Lock{
		setPxLua(), setPxIncr(), setNx(), setNxExpire(), setPxDel(), getThenDel(), weakOwner(), redisLock(), redSync(), rueidisLock(), rueidisSetPxLua(),
	}
}

// expiring fills in what the locks have in common whose keys expire by the servers' wall clocks.
func expiring(l backends.Lock) backends.Lock {
	l.Offers.Try, l.Offers.Reentrant, l.Offers.Expires, l.Offers.WallClock = true, "no", true, true
	l.Offers.Token = cmp.Or(l.Offers.Token, backends.TokenNone)
	l.MinTTL, l.Recovery = 10*time.Millisecond, recovery
	return l
}

// named returns the lock of that name among those, or none.
func named(name string) (found backends.Lock) {
	for _, l := range locks() {
		if l.Name == name {
			found = l
		}
	}
	return found
}

// waiting names the locks that know LockParams.Wait.
func waiting() (names []string) {
	for _, l := range locks() {
		if l.Waits {
			names = append(names, l.Name)
		}
	}
	return names
}

// outlasting allows for a failover in the locks' recovery bounds. detection is the topology's default for how long a dead server goes unnoticed. A
// longer setting counts twice, because a vote that nobody wins is repeated.
func outlasting(detection time.Duration, list []backends.Lock) []backends.Lock {
	for i, l := range list {
		if l.Recovery == nil {
			continue
		}
		list[i].Recovery = func(ttl time.Duration) time.Duration { return l.Recovery(ttl) + failoverTime }
		list[i].RecoveryWith = backends.RecoveryBy(lockParams, func(ttl time.Duration, p LockParams) time.Duration {
			return list[i].Recovery(ttl) + 2*max(0, p.Detection-detection)
		})
	}
	return list
}

// LockParams is what a client process is told.
type LockParams struct {
	// Timeout bounds one command on the wire, and one connect; finding the primary by way of a Sentinel that hangs takes four.
	Timeout time.Duration  `yaml:"timeout" json:"timeout_ns"`
	Retry   backends.Retry `yaml:"retry" json:"retry"`
	// Wait is how many replicas must have acknowledged a grant (WAIT after SET) before it counts; 0 asks none.
	Wait int `yaml:"wait" json:"wait"`
	// WaitTimeout is what the server is told: how long WAIT may wait for them.
	WaitTimeout time.Duration `yaml:"wait_timeout" json:"wait_timeout_ns"`
	// Master is the name under which somebody else's Sentinels know the primary.
	Master string `yaml:"-" json:"master,omitempty"`
	// Detection is how long a dead server goes unnoticed where others take its place; 0: as long as by default.
	Detection time.Duration `yaml:"-" json:"detection_ns,omitempty"`
}

func lockDefaults() LockParams {
	return LockParams{
		Timeout:     time.Second,
		Retry:       backends.Retry{Delay: 10 * time.Millisecond, Jitter: 0.5},
		WaitTimeout: 500 * time.Millisecond,
	}
}

// check names the key that is wrong, where each primary has that many replicas.
func (p LockParams) check(replicas int) error {
	if err := backends.CheckDuration("timeout", p.Timeout, time.Millisecond); err != nil {
		return err
	}
	switch {
	case p.Wait != 0 && replicas == 0:
		return fmt.Errorf("wait is %d; there are no replicas to wait for: leave it out", p.Wait)
	case p.Wait < 0 || p.Wait > replicas:
		return fmt.Errorf("wait is %d; it must be from 0 to %d, the number of replicas of a primary", p.Wait, replicas)
	case p.Wait > 0 && p.WaitTimeout >= p.Timeout:
		return fmt.Errorf("wait_timeout is %s; it must be less than timeout (%s), or the client gives up before the server", p.WaitTimeout, p.Timeout)
	}
	if err := backends.CheckDuration("wait_timeout", p.WaitTimeout, time.Millisecond); err != nil { // WAIT 0 would wait for ever
		return err
	}
	return p.Retry.Check()
}

// checkWait refuses to wait for replicas with a lock that does not: who asked for it would believe in it.
func (p LockParams) checkWait(c topology.Common) error {
	if p.Wait == 0 || c.Lock == "" || named(c.Lock).Waits {
		return nil
	}
	return fmt.Errorf("wait is %d; the lock %s does not wait for replicas, only %s do", p.Wait, c.Lock, strings.Join(waiting(), ", "))
}

// describe is the part of a service's description that the lock's parameters are.
func (p LockParams) describe(c topology.Common) map[string]string {
	out := map[string]string{"lock.retry": p.Retry.String(), "lock.timeout": p.Timeout.String(), "lock.ttl": c.TTL.String()}
	if named(c.Lock).Offers.Blocking {
		out["lock.retry"] = "none: the server tells waiters that the key has changed"
	}
	if p.Wait > 0 {
		out["lock.wait"] = fmt.Sprintf("%d replicas, %s", p.Wait, p.WaitTimeout)
	}
	return out
}

// persistence is the server's command line for each policy.
var persistence = map[string][]string{
	"none":     {"--save", "", "--appendonly", "no"},
	"snapshot": {"--save", "1 1", "--appendonly", "no"},
	// Redis' own save points: the first is an hour away, so that only a server that ends in order writes what it knows.
	"save-points": {"--save", "3600 1 300 100 60 10000", "--appendonly", "no"},
	"everysec":    {"--save", "", "--appendonly", "yes", "--appendfsync", "everysec"},
	"always":      {"--save", "", "--appendonly", "yes", "--appendfsync", "always"},
}

// syncThreads is how the name begins of the thread that syncs a server's data. With "always" it is the main thread, which does all
// else as well.
func syncThreads(policy string) []string {
	if policy == "everysec" {
		return []string{"bio_aof"}
	}
	return nil
}

func checkPersistence(policy string) error {
	if _, ok := persistence[policy]; !ok {
		return fmt.Errorf("persistence is %q; it must be none, snapshot, save-points, everysec or always", policy)
	}
	return nil
}

// secret is the part of a server's configuration that others must not see: its password, with which it also follows a primary.
func secret(password string) string {
	return "requirepass " + password + "\nmasterauth " + password + "\n"
}

// command is the argv of a server that is reached at address. It includes its secret, rather than have it as its configuration file: that the
// Sentinels would have it rewrite, and a restarted server would find in it whom it once followed.
func command(place node.Place, address, policy string) []string {
	host, port := splitAddress(address)
	argv := []string{
		"redis-server", "--port", port, "--bind", node.ListenOn(host), "--protected-mode", "no", "--daemonize", "no", "--dir", place.Dir,
	}
	if place.Secret != "" {
		argv = append(argv, "--include", place.Secret)
	}
	return append(argv, persistence[policy]...)
}

// lockParams decodes what a client process was told.
func lockParams(raw json.RawMessage) (LockParams, error) {
	p := lockDefaults()
	if err := backends.DecodeParams(raw, &p); err != nil {
		return p, fmt.Errorf("parameters of redis: %w", err)
	}
	return p, nil
}

// Store describes a Redis server that is not a lock service but what a lock protects, with this package's image and
// settings. It keeps everything in memory.
func Store(name string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Resource, Image: "redis",
		Ports:   []node.Port{{Name: Port, Number: 6379}},
		Secret:  secret,
		Command: func(p node.Place) []string { return command(p, p.Address(name, Port), "none") },
	}
}
