//go:build bench

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	etcdbackend "github.com/lockquake/lockquake/backends/etcd"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
)

// etcdScenario has 8 users on one lock, with timeouts longer than the pauses between turns.
const etcdScenario = `
name: etcd-generator
claim: How fast users hand one lock of etcd on to each other.
backend: {use: etcd, lock: mutex, nodes: 3, ttl: 10m, timeout: 5m}
workload: {use: %s, clients: 1, users: 8}
run: {for: 1h, settle: 100ms, seed: 1}
`

// TestEtcdGeneratorCost prints how fast lockquake's users pass one etcd lock on, next to etcd's own `benchmark stm
// --stm-locker lock-client` on the same cluster. ETCD_BENCHMARK names that program.
//
// The two do not do quite the same under the lock, so each is measured in two ways, and the truth lies in between.
// Lockquake's acquire-release sends nothing under the lock, whereas the benchmark sends its transaction even if it is
// empty. Lockquake's counter writes twice (the value, and the log of reads and writes), whereas the benchmark reads
// and writes once.
func TestEtcdGeneratorCost(t *testing.T) {
	program := os.Getenv("ETCD_BENCHMARK")
	if program == "" {
		fmt.Println("not measured: ETCD_BENCHMARK names no program (built from go.etcd.io/etcd/v3/tools/benchmark)")
		return
	}
	turns := times(t, "LOCKQUAKE_TURNS", 50)
	provider := providerFor(t, "local", "the generator")
	fmt.Printf("provider %s, %d turns of %v, load %s\n", provider.Name(), turns, slice, readFirstLine("/proc/loadavg"))
	plain, writing, again := &contender{name: "mutex"}, &contender{name: "mutex, counter in etcd"}, &contender{name: "mutex again"}
	first := startEtcd(t, provider, plain, "acquire-release")
	second := startEtcd(t, provider, writing, "counter, resource: {use: etcd, guard: none}")
	startEtcd(t, provider, again, "acquire-release")
	empty := startEtcdBenchmark(t, plain, program, first, "0", "0")
	full := startEtcdBenchmark(t, writing, program, second, "1", "100")
	takeTurns(t, turns, []*contender{plain, writing, again, empty, full})
	printRatios([]ratio{
		{"mutex / benchmark, an empty transaction", plain.rates, empty.rates},
		{"mutex, counter / benchmark, a write", writing.rates, full.rates},
		{"mutex / the same again (A/A)", plain.rates, again.rates},
	})
}

// startEtcd starts a run on a cluster of its own, stops its client, and returns the addresses of the members.
func startEtcd(t *testing.T, p cluster.Provider, c *contender, workload string) (endpoints []string) {
	t.Helper()
	members := slices.DeleteFunc(startRun(t, p, c, fmt.Sprintf(etcdScenario, workload), true), func(n *cluster.Node) bool { return n.Role() != node.Server })
	c.service = newEtcdService(t, members)
	for _, n := range members {
		endpoints = append(endpoints, n.Address(etcdbackend.Port))
	}
	return endpoints
}

// startEtcdBenchmark starts etcd's own benchmark on the cluster of a run. Its processes all use the same lock, so each
// needs a cluster of its own.
func startEtcdBenchmark(t *testing.T, beside *contender, program string, endpoints []string, keys, written string) *contender {
	t.Helper()
	c := &contender{name: "benchmark, transactions of " + keys + " keys", service: beside.service}
	return startBeside(t, beside.pids[0], c, nil, program, "--endpoints", strings.Join(endpoints, ","), "--clients", "8", "--conns", "8",
		"stm", "--stm-locker", "lock-client", "--total", "1000000000", "--keys-per-txn", keys, "--txn-wr-percent", written)
}

// etcdService is an etcd cluster. Each cycle of a mutex deletes its key once, which is what is counted.
type etcdService struct {
	pids    []int
	clients []*http.Client
}

func newEtcdService(t *testing.T, members []*cluster.Node) etcdService {
	t.Helper()
	var s etcdService
	for _, n := range members {
		s.pids = append(s.pids, pid(t, n))
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return n.Dial(ctx, etcdbackend.Port) }
		s.clients = append(s.clients, &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 10 * time.Second})
	}
	return s
}

func (s etcdService) asked(t *testing.T) (cycles, cpu int64) {
	t.Helper()
	for _, c := range s.clients {
		resp, err := c.Get("http://etcd/metrics")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			line := lines.Text()
			if strings.HasPrefix(line, "grpc_server_started_total{") && strings.Contains(line, `grpc_method="DeleteRange"`) {
				n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
				if err != nil {
					t.Fatal(err)
				}
				cycles += int64(n)
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	return cycles, used(t, s.pids)
}

func (etcdService) ready(*testing.T) {}

func (etcdService) tidy(*testing.T) {}
