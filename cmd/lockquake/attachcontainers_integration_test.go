//go:build integration

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// apart is a service whose servers run in containers that lockquake did not start. They use TLS, and require a client
// certificate and a password.
type apart struct {
	attachedRun
	locks int // number of its locks to try, from the first; 0: one
	// start starts the servers and returns their addresses by port.
	start func(t *testing.T, a *authority) map[string][]string
}

const (
	apartPassword     = "open sesame"
	sentinelsPassword = "other"
)

var servicesApart = []apart{
	{attachedRun: attachedRun{backend: "redis", prefix: "bench:", yaml: "user: bench\n"}, start: func(t *testing.T, a *authority) map[string][]string {
		return map[string][]string{"client": a.redis(t, 1)}
	}},
	{attachedRun: attachedRun{
		backend: "redlock", prefix: "bench:", yaml: "user: bench\n", lasts: "2s", set: []string{"backend.node_timeout=500ms"},
	}, start: func(t *testing.T, a *authority) map[string][]string {
		return map[string][]string{"client": a.redis(t, 3)}
	}},
	{attachedRun: attachedRun{
		backend: "sentinel", prefix: "bench:",
		yaml: "user: bench\nsentinels:\n  master: mymaster\n  endpoints: [%s]\n  password: {env: LOCKQUAKE_BENCH_SENTINELS_PASSWORD}\n",
	}, locks: 8, start: sentinelApart},
	{attachedRun: attachedRun{backend: "rediscluster", prefix: "bench:", yaml: "user: bench\n", seeds: 1}, locks: 8, start: clusterApart},
	{attachedRun: attachedRun{backend: "etcd", prefix: "bench/", yaml: "user: bench\n"}, start: etcdApart},
	{attachedRun: attachedRun{
		backend: "zookeeper", prefix: "/bench/", yaml: "user: bench\n", set: []string{"backend.tick_time=200ms", "backend.sync_limit=2"},
	}, start: zookeeperApart},
	{attachedRun: attachedRun{backend: "postgres", prefix: "bench_", yaml: "user: lockquake\n"}, start: postgresApart},
}

// TestAttachByTLS attaches to separately started servers in containers, with TLS certificates on both sides and
// passwords. The run is refused if the servers' certificate is not trusted.
func TestAttachByTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	for _, s := range servicesApart {
		t.Run(s.backend, func(t *testing.T) {
			t.Parallel()
			at := s.start(t, ours)
			access := backends.Access{Login: node.Login{Password: apartPassword}}
			for port, list := range at {
				for _, address := range list {
					access.Nodes = append(access.Nodes, backends.Endpoint{Addresses: map[string]string{port: address}})
				}
			}
			s.watch = func(_ *testing.T, _ *recorder, _ backends.Access, _, address string) string { return address }
			trusting, distrusting := s.attachedRun, s.attachedRun
			trusting.yaml, distrusting.yaml = ours.yaml()+s.yaml, theirs.yaml()+s.yaml
			for _, l := range s.tried() {
				t.Run(l.Name, func(t *testing.T) { trusting.run(t, access, l) })
			}
			distrusting.refused(t, access, s.tried()[0], cli.CodeMissing, "certificate")
		})
	}
}

// tried returns the first locks of the service; several must be of different libraries.
func (s apart) tried() []backends.Lock {
	for _, b := range all.All() {
		if b.Name != s.backend {
			continue
		}
		out := b.Locks[:1]
		for _, l := range b.Locks[:max(s.locks, 1)] {
			if l.Name == "rueidislock" {
				out = append(out[:1:1], l)
			}
		}
		return out
	}
	return nil
}

// container starts a program in the machine's network, with the authority's files below /tls. It waits until the
// program listens and, unless ready is "", has printed ready.
func (a *authority) container(t *testing.T, image, address, ready, script string, args ...string) {
	t.Helper()
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %s: %v\n%s", args[0], err, out)
		}
		return strings.TrimSpace(string(out))
	}
	id := docker(append([]string{"create", "--network", "host", image, "sh", "-c", "set -e\n" + script, "sh"}, args...)...)
	t.Cleanup(func() { docker("rm", "--force", "--volumes", id) })
	docker("cp", a.dir+"/.", id+":/tls")
	docker("start", id)
	if !wait.Within(30*time.Second, func() bool { return accepts(address) && strings.Contains(docker("logs", id), ready) }) {
		t.Fatalf("nobody listens at %s\n%s", address, docker("logs", id))
	}
}

// redisTLS returns the arguments of a Redis server with two users: one with all rights, and one limited to the prefix.
func redisTLS(address string) []string {
	return []string{
		"port 0", "bind 127.0.0.1", "tls-port " + portOf(address), "tls-cert-file /tls/server.pem", "tls-key-file /tls/server.key",
		"tls-ca-cert-file /tls/ca.pem", "tls-replication yes", "dir /tmp",
	}
}

var redisUsers = []string{`save ""`, "requirepass of-all", `user bench on ">` + apartPassword + `" ~bench:* &* +@all`}

const runRedis = `printf '%s\n' "$1" >/tmp/redis.conf; shift; exec redis-server /tmp/redis.conf "$@"`

func (a *authority) redis(t *testing.T, servers int) (addresses []string) {
	for range servers {
		at := freeAddress(t)
		a.container(t, "lockquake-redis", at, "Ready to accept", runRedis, strings.Join(append(redisTLS(at), redisUsers...), "\n"))
		addresses = append(addresses, at)
	}
	return addresses
}

func sentinelApart(t *testing.T, a *authority) map[string][]string {
	servers, watch := a.redis(t, 1), freeAddress(t)
	config := append(redisTLS(watch), "requirepass "+sentinelsPassword, "sentinel monitor mymaster 127.0.0.1 "+portOf(servers[0])+" 1", "sentinel auth-pass mymaster of-all")
	a.container(t, "lockquake-redis", watch, "+monitor", runRedis, strings.Join(config, "\n"), "--sentinel")
	return map[string][]string{"client": servers, "sentinel": {watch}}
}

// clusterApart starts a cluster of two primaries.
func clusterApart(t *testing.T, a *authority) map[string][]string {
	var list, buses []string
	for range 2 {
		at, bus := freeAddress(t), freeAddress(t)
		config := append(append(redisTLS(at), redisUsers...), "cluster-enabled yes", "tls-cluster yes", "cluster-port "+portOf(bus), "cluster-announce-ip 127.0.0.1")
		a.container(t, "lockquake-redis", at, "Ready to accept", runRedis, strings.Join(config, "\n"))
		list, buses = append(list, at), append(buses, bus)
	}
	for i, at := range list {
		c := redis.NewClient(&redis.Options{Addr: at, Password: "of-all", TLSConfig: a.client(), Protocol: 2})
		defer c.Close()
		err := c.ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err()
		if err == nil && i == 1 {
			err = c.Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", portOf(list[0]), portOf(buses[0])).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if !wait.Within(20*time.Second, func() bool { return strings.Contains(c.ClusterInfo(context.Background()).Val(), "cluster_state:ok") }) {
				t.Fatalf("the cluster did not form: %s", c.ClusterInfo(context.Background()))
			}
		}()
	}
	return map[string][]string{"client": list}
}

func etcdApart(t *testing.T, a *authority) map[string][]string {
	at, peers := freeAddress(t), freeAddress(t)
	a.container(t, "lockquake-etcd34", at, "serving client traffic securely", `exec etcd --name one --data-dir /tmp/etcd --logger zap \
		--listen-client-urls "https://$1" --advertise-client-urls "https://$1" --listen-peer-urls "http://$2" --initial-advertise-peer-urls "http://$2" \
		--initial-cluster "one=http://$2" --cert-file /tls/server.pem --key-file /tls/server.key --trusted-ca-file /tls/ca.pem --client-cert-auth`, at, peers)
	etcdUser(t, clientv3.Config{Endpoints: []string{at}, DialTimeout: 10 * time.Second, TLS: a.client()}, apartPassword)
	return map[string][]string{"client": {at}}
}

func zookeeperApart(t *testing.T, a *authority) map[string][]string {
	at := freeAddress(t)
	config := fmt.Sprintf(`dataDir=/tmp/data
secureClientPort=%s
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
tickTime=200
admin.enableServer=false
4lw.commands.whitelist=srvr,mntr,envi,cons
ssl.keyStore.location=/tmp/both.pem
ssl.keyStore.type=PEM
ssl.trustStore.location=/tls/ca.pem
ssl.trustStore.type=PEM
ssl.clientHostnameVerification=false
`, portOf(at))
	a.container(t, "lockquake-zookeeper", at, "", `mkdir /tmp/data; cat /tls/server.pem /tls/server.key >/tmp/both.pem; printf '%s' "$1" >/tmp/zoo.cfg
		jars=/usr/share/java; path=$jars/zookeeper.jar:$jars/slf4j-simple.jar$(printf ':%s' $jars/netty-*.jar)
		exec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$path" \
			org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg`, config)
	return map[string][]string{"client": {at}}
}

func postgresApart(t *testing.T, a *authority) map[string][]string {
	at := freeAddress(t)
	a.container(t, "lockquake-postgres", at, "ready to accept connections", `install -m 600 /tls/server.key /tmp/server.key
		echo "ALTER ROLE lockquake PASSWORD '$2'" | postgres --single -D data postgres >/tmp/single
		echo 'hostssl all all all scram-sha-256 clientcert=verify-ca' >data/pg_hba.conf
		exec postgres -D data -p "$1" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c ssl=on -c ssl_cert_file=/tls/server.pem \
			-c ssl_key_file=/tmp/server.key -c ssl_ca_file=/tls/ca.pem`, portOf(at), apartPassword)
	return map[string][]string{"client": {at}}
}
