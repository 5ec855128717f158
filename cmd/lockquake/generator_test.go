//go:build bench

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"golang.org/x/perf/benchmath"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
)

// generatorScenario has 50 users, each on a lock of its own, at full speed, with timeouts longer than the pauses
// between turns.
const generatorScenario = `
name: generator
claim: How fast the generator is, on locks that nobody else wants.
backend: {use: redis, lock: %s, ttl: 10m, timeout: 5m}
workload: {use: acquire-release, clients: 1, users: 50, own_locks: true}
run: {for: 1h, settle: 100ms, seed: 1}
`

const (
	// slice is the time that one contender runs per turn. It is short compared with the speed changes of a shared
	// machine, and long compared with a stop and a start.
	slice = 200 * time.Millisecond
	// drain is the pause between two slices. In it the supervisor reads what the last contender has written, so that
	// the next one does not pay for it. It exceeds the 8 ms for which a busy stream may fill.
	drain = 15 * time.Millisecond
	// users is the number of concurrent lock users.
	users = 50
)

// giveScript deletes the caller's own key.
const giveScript = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`

// contender is a group of processes that use a service, and take turns with other groups.
type contender struct {
	name    string
	pids    []int
	service service

	rates             []float64 // cycles per second, for each turn
	cycles, ran       int64     // in all turns
	own, servers, sup int64     // processor time in ns: of the processes, the server, the supervisor
	before            int64     // of the processes, at the start
}

// service counts the contenders' cycles.
type service interface {
	// asked returns the cycles so far, and the processor time of the servers in ns.
	asked(t *testing.T) (cycles, cpu int64)
	// ready prepares a turn, and tidy removes what it left.
	ready(t *testing.T)
	tidy(t *testing.T)
}

// redisService is one Redis server.
type redisService struct {
	*redis.Client
	command string // cycles are counted by the server's calls of this command
	calls   int64  // of the command, per cycle
}

// TestGeneratorCost prints the speed of lockquake's clients next to programs that only acquire and release locks, on
// one Redis over the same links. Only one of them runs at a time: each has a slice in turn, and the server counts its
// cycles. LOCKQUAKE_TURNS sets the number of turns.
//
// A ratio compares two slices of one turn. If others use the machine too, processor time per cycle means more than the
// rate.
func TestGeneratorCost(t *testing.T) {
	turns := times(t, "LOCKQUAKE_TURNS", 50)
	provider := providerFor(t, "local", "the generator")
	fmt.Printf("provider %s, %d turns of %v, %s, load %s\n", provider.Name(), turns, slice, redisVersion(t), readFirstLine("/proc/loadavg"))
	recorded, server := startClient(t, provider, "set-px-lua", true)
	again, _ := startClient(t, provider, "set-px-lua", true)
	unrecorded, _ := startClient(t, provider, "set-px-lua", false)
	pipelined, _ := startClient(t, provider, "rueidis-set-px-lua", true)
	library, _ := startClient(t, provider, "rueidislock", true)
	beside := recorded.pids[0]
	all := []*contender{
		recorded, again, unrecorded, pipelined, library,
		startBare(t, beside, server, "go-redis"), startBare(t, beside, server, "rueidis"),
		startBenchmark(t, beside, server, "set", "SET", benchmarkKey, benchmarkOwner, "NX", "PX", "600000"),
		startBenchmark(t, beside, server, "evalsha", "EVALSHA", redis.NewScript(giveScript).Hash(), "1", benchmarkKey, benchmarkOwner),
	}
	takeTurns(t, turns, all)
	by := map[string]*contender{}
	for _, c := range all {
		by[c.name] = c
	}
	bench := make([]float64, turns) // a cycle is one of each
	for i := range bench {
		bench[i] = 1 / (1/by["redis-benchmark set"].rates[i] + 1/by["redis-benchmark evalsha"].rates[i])
	}
	fmt.Printf("%-34s %12.0f\n", "redis-benchmark, both", median(slices.Clone(bench)).Center)
	gives := by["redis-benchmark evalsha"].service.(*benchmarkedRedis)
	fmt.Printf("of %d EVALSHAs %d deleted their key, by the server's count\n\n", gives.scripts, gives.given)
	printRatios([]ratio{
		{"set-px-lua / bare go-redis", recorded.rates, by["bare go-redis"].rates},
		{"set-px-lua / redis-benchmark", recorded.rates, bench},
		{"rueidis-set-px-lua / bare rueidis", pipelined.rates, by["bare rueidis"].rates},
		{"rueidis-set-px-lua / redis-benchmark", pipelined.rates, bench},
		{"rueidislock / bare rueidis", library.rates, by["bare rueidis"].rates},
		{"set-px-lua recorded / not", recorded.rates, unrecorded.rates},
		{"set-px-lua / the same again (A/A)", recorded.rates, again.rates},
	})
}

// takeTurns runs contenders one at a time, in a random order for each turn, and prints the results.
func takeTurns(t *testing.T, turns int, all []*contender) {
	t.Helper()
	for _, c := range all { // the first turn is a warm-up
		c.turn(t)
		*c = contender{name: c.name, pids: c.pids, service: c.service}
		c.before = used(t, c.pids)
	}
	order := rand.New(rand.NewPCG(1, 1))
	for range turns { // no contender always follows the same one
		for _, k := range order.Perm(len(all)) {
			all[k].turn(t)
		}
	}
	fmt.Printf("\n%-34s %12s %14s %14s %14s\n", "", "cycles/s", "own us/cycle", "server", "supervisor")
	for _, c := range all {
		c.own = used(t, c.pids) - c.before
		us := func(ns int64) float64 { return float64(ns) / float64(c.cycles) / 1e3 }
		fmt.Printf("%-34s %12.0f %14.2f %14.2f %14.2f\n", c.name, median(c.rates).Center, us(c.own), us(c.servers), us(c.sup))
	}
}

// ratio is the quotient of two contenders' cycles per second, turn by turn.
type ratio struct {
	name     string
	of, over []float64
}

func printRatios(all []ratio) {
	for _, r := range all {
		ratios := make([]float64, len(r.of))
		for i := range ratios {
			ratios[i] = r.of[i] / r.over[i]
		}
		s := median(ratios)
		fmt.Printf("%-38s median %.3f, 95 %% interval %.3f to %.3f, n %d\n", r.name, s.Center, s.Lo, s.Hi, len(ratios))
	}
	fmt.Printf("load after: %s\n", readFirstLine("/proc/loadavg"))
}

// median summarizes the values.
func median(values []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95)
}

// turn runs the contender for one slice.
func (c *contender) turn(t *testing.T) {
	t.Helper()
	c.service.ready(t)
	cycles, server := c.service.asked(t)
	sup := wire.CPU()
	from := clock.Now()
	c.signal(t, unix.SIGCONT)
	time.Sleep(slice)
	c.signal(t, unix.SIGSTOP)
	ran := clock.Now() - from
	time.Sleep(drain)
	c.sup += wire.CPU() - sup
	cyclesThen, serverThen := c.service.asked(t)
	c.service.tidy(t)
	cycles = cyclesThen - cycles
	c.cycles, c.ran, c.servers = c.cycles+cycles, c.ran+ran, c.servers+serverThen-server
	c.rates = append(c.rates, float64(cycles)/time.Duration(ran).Seconds())
}

func (c *contender) signal(t *testing.T, s unix.Signal) {
	t.Helper()
	for _, pid := range c.pids {
		if err := unix.Kill(pid, s); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
}

func (redisService) ready(*testing.T) {}

func (s redisService) tidy(t *testing.T) {
	t.Helper()
	if err := s.Do(context.Background(), "FLUSHDB").Err(); err != nil { // of the database that only the benchmark uses
		t.Fatal(err)
	}
}

func (s redisService) asked(t *testing.T) (cycles, cpu int64) {
	t.Helper()
	info := s.info(t)
	for _, key := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		cpu += int64(seconds * 1e9)
	}
	return calls(t, info, s.command) / s.calls, cpu
}

// info returns the server's counters.
func (s redisService) info(t *testing.T) map[string]string {
	t.Helper()
	text, err := s.Info(context.Background(), "commandstats", "cpu").Result()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		out[key] = value
	}
	return out
}

// calls returns the calls of a command, including those in scripts.
func calls(t *testing.T, info map[string]string, command string) int64 {
	t.Helper()
	value, ok := info["cmdstat_"+command]
	if !ok { // never called
		return 0
	}
	value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return n
}

// used returns the processor time of processes in ns.
func used(t *testing.T, pids []int) (ns int64) {
	t.Helper()
	for _, pid := range pids {
		text := readFirstLine(fmt.Sprintf("/proc/%d/stat", pid))
		f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		for _, ticks := range f[11:13] { // utime and stime, in units of 10 ms
			n, err := strconv.ParseInt(ticks, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			ns += n * 1e7
		}
	}
	return ns
}

// startClient starts a run on its own Redis, and stops the client.
func startClient(t *testing.T, p cluster.Provider, lock string, record bool) (*contender, *cluster.Node) {
	t.Helper()
	c := &contender{name: lock}
	if !record {
		c.name += ", not recorded"
	}
	server := startRun(t, p, c, fmt.Sprintf(generatorScenario, lock), record)[0]
	calls := int64(1)
	if lock == "rueidislock" {
		calls = 2 // its SET is a script as well
	}
	c.service = connectTo(t, server, "evalsha", calls)
	return c, server
}

// startRun starts a run, stops its client once the load has begun, and returns the run's nodes.
func startRun(t *testing.T, p cluster.Provider, c *contender, text string, record bool) []*cluster.Node {
	t.Helper()
	sc, err := scenarios.Parse([]byte(text), "generator")
	if err != nil {
		t.Fatal(err)
	}
	tap := tapped{Provider: p, nodes: make(chan []*cluster.Node, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	loading, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	out := t.TempDir()
	go func() {
		defer close(done)
		_, err = engine.Run(ctx, engine.Options{
			Request: engine.Request{Scenario: sc, Provider: tap, Catalog: nodes.Catalog()}, Out: out, Version: "bench", Started: time.Now(), NoRecord: !record,
			Log: slog.New(slog.DiscardHandler),
			Progress: func(p engine.Progress) {
				if p.Grants > 0 || p.Elapsed > slice {
					once.Do(func() { close(loading) })
				}
			},
		})
	}()
	select {
	case <-loading:
	case <-done:
		t.Fatalf("a run ended before its load: %v", err)
	}
	nodes := <-tap.nodes
	i := slices.IndexFunc(nodes, func(n *cluster.Node) bool { return n.Role() == node.Client })
	c.pids = []int{pid(t, nodes[i])}
	c.signal(t, unix.SIGSTOP)
	t.Cleanup(func() {
		c.signal(t, unix.SIGCONT)
		cancel()
		<-done
	})
	return nodes
}

func pid(t *testing.T, n *cluster.Node) int {
	t.Helper()
	state, err := n.Signals.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state.PID
}

// tapped is a provider that exposes the nodes it makes.
type tapped struct {
	cluster.Provider
	nodes chan []*cluster.Node
}

func (p tapped) Open(ctx context.Context, r cluster.Request) (*cluster.Cluster, error) {
	c, err := p.Provider.Open(ctx, r)
	if err == nil {
		p.nodes <- slices.Clone(c.Nodes)
	}
	return c, err
}

// connectTo opens a connection for the test to the server. The server counts the calls of a command; a cycle makes the
// given number of them.
func connectTo(t *testing.T, n *cluster.Node, command string, calls int64) redisService {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Password: n.Login().Password, Protocol: 2, DB: 1,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return n.Dial(ctx, access.Port) },
	})
	t.Cleanup(func() { _ = c.Close() })
	return redisService{c, command, calls}
}

// startBare starts a bare loop, see TestBareLoop.
func startBare(t *testing.T, beside int, server *cluster.Node, library string) *contender {
	t.Helper()
	env := map[string]string{"BARE": library, "BARE_ADDRESS": server.Address(access.Port), "BARE_PASSWORD": server.Login().Password}
	c := &contender{name: "bare " + library, service: connectTo(t, server, "evalsha", 1)}
	return startBeside(t, beside, c, env, os.Args[0], "-test.run", "^TestBareLoop$")
}

// startBeside starts a program in the network namespace of another process, and stops it.
func startBeside(t *testing.T, beside int, c *contender, env map[string]string, argv ...string) *contender {
	t.Helper()
	x := exec.Command("nsenter", append([]string{"-n", "-t", strconv.Itoa(beside), "--"}, argv...)...)
	x.Env = os.Environ()
	var said bytes.Buffer
	x.Stderr = &said
	for k, v := range env {
		x.Env = append(x.Env, k+"="+v)
	}
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = x.Process.Kill()
		_ = x.Wait()
		if t.Failed() {
			t.Logf("%s: %s", c.name, said.String())
		}
	})
	c.pids = []int{x.Process.Pid}
	time.Sleep(slice) // the program has warmed up
	c.signal(t, unix.SIGSTOP)
	return c
}

// TestBareLoop is the program of startBare: users that acquire and release locks, through the library alone.
func TestBareLoop(t *testing.T) {
	address, password := os.Getenv("BARE_ADDRESS"), os.Getenv("BARE_PASSWORD")
	var cycle func(ctx context.Context, key string) error
	const owner, ttl = "0123456789abcdef0123456789abcdef01234567", 10 * time.Minute
	switch os.Getenv("BARE") {
	case "":
		t.Skip("it is a part of TestGeneratorCost")
	case "go-redis":
		c := redis.NewClient(&redis.Options{Addr: address, Password: password, Protocol: 2, PoolSize: users, ReadTimeout: time.Hour})
		script := redis.NewScript(giveScript)
		cycle = func(ctx context.Context, key string) error {
			taken, err := c.SetNX(ctx, key, owner, ttl).Result()
			given, err2 := script.Run(ctx, c, []string{key}, owner).Int()
			return cycled(taken, given, errors.Join(err, err2))
		}
	case "rueidis":
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{address}, Password: password, ForceSingleClient: true, DisableCache: true, ConnWriteTimeout: time.Hour,
			PipelineMultiplex: -1, MaxFlushDelay: 20 * time.Microsecond, // as in rueidis-set-px-lua
		})
		if err != nil {
			t.Fatal(err)
		}
		script := rueidis.NewLuaScript(giveScript)
		cycle = func(ctx context.Context, key string) error {
			err := c.Do(ctx, c.B().Set().Key(key).Value(owner).Nx().Px(ttl).Build()).Error()
			given, err2 := script.Exec(ctx, c, []string{key}, []string{owner}).AsInt64()
			return cycled(err == nil, int(given), errors.Join(err, err2))
		}
	}
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() {
			for key := os.Getenv("BARE") + ":" + strconv.Itoa(i); ; {
				if err := cycle(context.Background(), key); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// cycled returns nil if a lock was acquired and released.
func cycled(taken bool, given int, err error) error {
	if err == nil && (!taken || given != 1) {
		return fmt.Errorf("taken is %t, given back %d", taken, given)
	}
	return err
}

func readFirstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[:len(b)-1])
}

func redisVersion(t *testing.T) string {
	t.Helper()
	b, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
