//go:build integration

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/results/capacity"
)

// attachedRun is a backend whose servers are started separately, and what a run may ask of them.
type attachedRun struct {
	backend string
	prefix  string
	up      []string // --set of the servers
	set     []string // --set of the runs
	yaml    string   // further keys of the attach file
	lasts   string   // how long the load lasts; "": 700ms
	chaos   string   // faults of the runs, as YAML
	in      string   // provider of the clients; "": local
	seeds   int      // number of endpoints in the file, if the service reports the others; 0: all
	// watch puts a recorder in front of the server at an address, and returns the recorder's address.
	watch func(t *testing.T, r *recorder, a backends.Access, port, address string) string
	least int // least number of commands that every run sends
}

var attachedRuns = []attachedRun{
	{backend: "redis", prefix: "bench:", watch: watchRedis, least: 20},
	{backend: "redlock", prefix: "bench:", watch: watchRedis, least: 20, up: []string{"nodes=3"}, set: []string{"backend.nodes=3"}},
	{backend: "sentinel", prefix: "bench:", watch: watchSentinel, least: 20, yaml: "sentinels:\n  master: lockquake\n  endpoints: [%s]\n  password: {env: LOCKQUAKE_BENCH_PASSWORD}\n"},
	{backend: "rediscluster", prefix: "bench:", watch: watchMonitored, least: 20, seeds: 2},
	{backend: "etcd", prefix: "bench/", watch: watchEtcd, least: 10, up: []string{"nodes=3"}, set: []string{"backend.nodes=3"}},
	{
		backend: "zookeeper", prefix: "/bench/", watch: watchZooKeeper, least: 10, set: []string{"backend.tick_time=200ms", "backend.sync_limit=2"},
	},
	{backend: "postgres", prefix: "bench_", watch: watchPostgres, least: 10, yaml: "user: lockquake\n"},
}

// TestEveryAttachableServiceIsRun: every attachable service is in one of the tables of separately started servers.
func TestEveryAttachableServiceIsRun(t *testing.T) {
	for _, b := range all.All() {
		if len(b.Attachable) == 0 {
			continue
		}
		if !slices.ContainsFunc(attachedRuns, func(a attachedRun) bool { return a.backend == b.Name }) {
			t.Errorf("attachedRuns has no entry for %s", b.Name)
		}
		if !slices.ContainsFunc(servicesApart, func(a apart) bool { return a.backend == b.Name }) {
			t.Errorf("servicesApart has no entry for %s", b.Name)
		}
	}
}

// TestAttachKeepsToItsPrefix runs every lock of every attachable service and records the traffic. No request may leave
// the prefix, and no command may touch the data of others.
func TestAttachKeepsToItsPrefix(t *testing.T) {
	t.Parallel()
	for _, a := range attachedRuns {
		t.Run(a.backend, func(t *testing.T) {
			t.Parallel()
			access, end := servers(t, "local", a.backend, a.up)
			defer end()
			for _, b := range all.All() {
				for i := 0; b.Name == a.backend && i < len(b.Locks); i++ {
					t.Run(b.Locks[i].Name, func(t *testing.T) {
						switch l := b.Locks[i]; {
						case i > 0 && slices.Contains([]string{"sentinel", "rediscluster"}, a.backend):
							leftToAll(t, "the same locks, on one Redis")
						case l.Wrong != "":
							leftToAll(t, "the lock is wrong on purpose; the right ones name their keys in the same way")
						}
						a.run(t, access, b.Locks[i])
					})
				}
			}
		})
	}
}

// TestAttachFromContainers runs clients in containers. They can reach a server on this machine's own address. They
// cannot reach a container of another network, although the supervisor can; the run says so before it writes anything.
// Faults of the links to the server act at the clients' ends.
func TestAttachFromContainers(t *testing.T) {
	t.Parallel()
	access, end := servers(t, "docker", "redis", nil)
	defer end()
	a := attachedRun{backend: "redis", prefix: "bench:", in: "docker", least: 20}
	l := all.All()[slices.IndexFunc(all.All(), func(b listed.Backend) bool { return b.Name == "redis" })].Locks[0]
	a.watch = func(_ *testing.T, _ *recorder, _ backends.Access, _, address string) string { return address }
	a.refused(t, access, l, cli.CodeMissing, "from where clients run (provider docker): "+access.Addresses("client")[0]+" cannot be reached")
	a.watch = func(t *testing.T, r *recorder, _ backends.Access, _, address string) string {
		return tapAt(t, machineAddress(t), address, r.reads)
	}
	a.lasts, a.chaos = "4s", `chaos:
  - {use: delay, by: 50ms, on: client-1, to: redis-1, at: 300ms, for: 1s}
  - {use: partition, how: reject, on: client-2, from: redis-1, at: 300ms, for: 1s}
`
	a.run(t, access, l) // unknown if a receipt does not confirm its fault
	a.away(t, access)
}

// away has a sweep measure the round trip to the servers, without and with 5 ms added at the clients' ends.
func (a attachedRun) away(t *testing.T, access backends.Access) {
	t.Helper()
	p := a.attach(t, access, a.watched(t, &recorder{t: t, under: a.prefix}, access), "capacity", "--users", "2", "--locks", "own", "--rtt", "0,5ms", "--for", "1s", "--repeat", "1", "--format", "json")
	code := p.wait(t)
	var s capacity.Sweep
	if err := json.Unmarshal([]byte(p.stdout.String()), &s); code != cli.CodeMet || err != nil || len(s.Points) != 2 {
		t.Fatalf("exit code %d, no sweep of two points (%v):\n%s\n%s", code, err, p.stdout.String(), p.stderr.String())
	}
	for _, point := range s.Points {
		one := point.Samples[0]
		if one.RTT == nil || *one.RTT <= 0 || *one.RTT < float64(point.Setting.RTT)/1e6 {
			t.Errorf("with %d ns added, the round trip is %v", point.Setting.RTT, one.RTT)
			continue
		}
		t.Logf("with %d ns added, the round trip is %.3f ms", point.Setting.RTT, *one.RTT)
	}
}

// TestAttachToALargeRedis: the server has more keys than the check at the start examines. The run says so, still
// removes what it wrote, and finds what another run has there.
func TestAttachToALargeRedis(t *testing.T) {
	t.Parallel()
	access, end := servers(t, "local", "redis", nil)
	defer end()
	client := redis.NewClient(&redis.Options{Addr: access.Addresses("client")[0], Password: access.Password, Protocol: 2})
	defer client.Close()
	const some, each = 300_000, 5000 // a longer script would time out
	for first := 1; first < some; first += each {
		err := client.Eval(t.Context(), "for i = ARGV[1], ARGV[1] + ARGV[2] - 1 do redis.call('SET', 'other:' .. i, i) end return 1", nil, first, each).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	others, err := client.DBSize(t.Context()).Result() // includes the keys of the server's own run
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{t: t, under: "bench:"}
	a := attachedRun{backend: "redis", prefix: r.under, watch: watchRedis}
	var last backends.Lock
	for _, b := range all.All() {
		for _, l := range b.Locks {
			if b.Name != "redis" || !slices.Contains([]string{"set-px-incr", "setnx", "rueidislock"}, l.Name) {
				continue
			}
			last = l
			p := a.begin(t, access, l, a.watched(t, r, access))
			code := p.wait(t)
			if !strings.Contains(p.stderr.String(), "not all keys were searched") || !strings.Contains(p.stderr.String(), fmt.Sprintf("of %d keys of", others)) {
				t.Errorf("%s: exit code %d, and nobody tells that not all was looked at\n%s", l.Name, code, p.stderr.String())
			}
			if left, err := client.Keys(t.Context(), "bench:*").Result(); err != nil || len(left) > 0 {
				t.Errorf("%s left %q, %v", l.Name, left, err)
			}
			if n, err := client.DBSize(t.Context()).Result(); err != nil || n != others {
				t.Errorf("%s: of %d keys of others there are %d, %v", l.Name, others, n, err)
			}
		}
	}
	if r.below == 0 || len(r.wrong) > 0 {
		t.Errorf("%d commands are about keys of the runs; not below the prefix: %q", r.below, r.wrong)
	}
	if err := client.Set(t.Context(), "bench:lockquake", "r0", 0).Err(); err != nil {
		t.Fatal(err)
	}
	a.refused(t, access, last, cli.CodeUsage, "run r0 is there, or was cut short")
}

// machineAddress returns an address of this machine other than loopback.
func machineAddress(t *testing.T) string {
	t.Helper()
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Fatal("this machine has no address but the loopback one")
	return ""
}

// servers starts a backend's servers separately. It returns how to reach them and a function that stops them.
func servers(t *testing.T, provider, backend string, sets []string) (backends.Access, func()) {
	t.Helper()
	args := []string{"up", backend, "--provider", provider, "--format", "json"}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	p := begin(t, args...)
	var a backends.Access
	if !wait.Within(2*time.Minute, func() bool { return json.Unmarshal([]byte(p.stdout.String()), &a) == nil }) {
		t.Fatalf("no endpoints within two minutes\n%s", p.stderr.String())
	}
	return a, func() {
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if code := p.wait(t); code != cli.CodeMet {
			t.Errorf("the servers ended with %d\n%s", code, p.stderr.String())
		}
	}
}

// shortRun is a scenario with a short load.
const shortRun = `name: attached
claim: a test
backend: {use: %s, lock: %s, ttl: 3s}
workload: {use: acquire-release, clients: 2, users: 2, hold: 5ms}
run: {for: %s, seed: 1, settle: 100ms}
%sexpect: {judged: ">=1"}
`

func (a attachedRun) run(t *testing.T, access backends.Access, l backends.Lock) {
	t.Helper()
	r := &recorder{t: t, under: a.prefix}
	p := a.begin(t, access, l, a.watched(t, r, access))
	code := p.wait(t)
	if code == cli.CodeUsage || code == cli.CodeMissing || l.Wrong == "" && code != cli.CodeMet {
		t.Errorf("exit code %d\n%s\n%s", code, p.stdout.String(), p.stderr.String())
	}
	if !strings.Contains(p.stderr.String(), "removed from the attached service") {
		t.Errorf("nobody tells what was removed\n%s", p.stderr.String())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen < a.least || r.below < a.least/2 {
		t.Errorf("%d commands were seen, %d of them about what is below the prefix", r.seen, r.below)
	}
	slices.Sort(r.wrong)
	for _, w := range slices.Compact(r.wrong) {
		t.Error(w)
	}
	if access.Password != "" {
		nowhere(t, p.dir, []byte(access.Password))
	}
}

// watched puts recorders in front of all servers, and returns their addresses by port.
func (a attachedRun) watched(t *testing.T, r *recorder, access backends.Access) map[string][]string {
	t.Helper()
	at := map[string][]string{}
	for _, n := range access.Nodes {
		for _, port := range []string{"client", "sentinel"} {
			if address := n.Addresses[port]; address != "" {
				at[port] = append(at[port], a.watch(t, r, access, port, address))
			}
		}
	}
	return at
}

// begin starts a run on endpoints, which are given by port.
func (a attachedRun) begin(t *testing.T, access backends.Access, l backends.Lock, at map[string][]string) *process {
	t.Helper()
	scenario := filepath.Join(t.TempDir(), "attached.yaml")
	if err := os.WriteFile(scenario, fmt.Appendf(nil, shortRun, a.backend, l.Name, cmp.Or(a.lasts, "700ms"), a.chaos), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", scenario, "--format", "table"}
	for _, s := range a.set {
		args = append(args, "--set", s)
	}
	return a.attach(t, access, at, args...)
}

// attach starts a command that attaches to endpoints, which are given by port.
func (a attachedRun) attach(t *testing.T, access backends.Access, at map[string][]string, args ...string) *process {
	t.Helper()
	if a.seeds > 0 {
		at["client"] = at["client"][:a.seeds]
	}
	text := fmt.Sprintf("backend: %s\nprefix: %q\nendpoints: [%s]\n", a.backend, a.prefix, strings.Join(at["client"], ", "))
	if access.Password != "" {
		text += "password: {env: LOCKQUAKE_BENCH_PASSWORD}\n"
	}
	if strings.Contains(a.yaml, "%s") {
		text += fmt.Sprintf(a.yaml, strings.Join(at["sentinel"], ", "))
	} else {
		text += a.yaml
	}
	file := filepath.Join(t.TempDir(), "attach.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(args, "--provider", cmp.Or(a.in, "local"), "--attach", file, "--yes")
	if access.Password == "" {
		return begin(t, args...)
	}
	return beginProgram(t, "env", slices.Concat([]string{"LOCKQUAKE_BENCH_PASSWORD=" + access.Password, "LOCKQUAKE_BENCH_SENTINELS_PASSWORD=" + sentinelsPassword, program(t)}, args)...)
}

// recorder collects the requests to servers.
type recorder struct {
	t     *testing.T
	under string

	mu    sync.Mutex
	seen  int
	below int // those of them that are about keys
	wrong []string
}

// command records a command on these keys.
func (r *recorder) command(text string, keys ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	for _, k := range keys {
		if !strings.HasPrefix(k, r.under) {
			r.wrong = append(r.wrong, fmt.Sprintf("%s is about %q, which is not below %s", text, k, r.under))
		}
		r.below++
	}
}

func (r *recorder) refuse(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// tap starts a proxy in front of an address; read sees what clients send.
func tap(t *testing.T, address string, read func(io.Reader) error) string {
	t.Helper()
	return tapAt(t, "127.0.0.1", address, read)
}

func tapAt(t *testing.T, host, address string, read func(io.Reader) error) string {
	t.Helper()
	return serveEach(t, host, func(c net.Conn) { passOn(t, c, address, read) })
}

// serveEach listens on a host, serves each connection until the test ends, and returns its address.
func serveEach(t *testing.T, host string, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { serve(c) })
		}
	})
	return l.Addr().String()
}

// untilGone forwards to a server that may close the connection at any time. What the client sends after that is still
// read.
type untilGone struct{ server io.Writer }

func (u untilGone) Write(b []byte) (int, error) {
	_, _ = u.server.Write(b)
	return len(b), nil
}

func passOn(t *testing.T, c net.Conn, address string, read func(io.Reader) error) {
	defer c.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(c, server); _ = c.Close() }()
	in := io.TeeReader(c, untilGone{server})
	if err := read(in); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF && !strings.Contains(err.Error(), "closed") && !strings.Contains(err.Error(), "reset") {
		t.Errorf("what a client sends to %s cannot be read: %v", address, err)
	}
	_, _ = io.Copy(io.Discard, in)
}
