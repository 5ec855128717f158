//go:build integration

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/nftables"
	"github.com/jackc/pgx/v5"

	"github.com/lockquake/lockquake/backends/all"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
)

// keptRuns makes runs of one scenario on kept servers, as run --repeat does.
type keptRuns struct {
	options engine.Options
	said    []string
}

func newKeptRuns(t *testing.T, scenario string, set ...string) *keptRuns {
	t.Helper()
	return newKeptRunsOn(t, setting("LOCKQUAKE_TEST_PROVIDER", "docker"), scenario, set...)
}

func newKeptRunsOn(t *testing.T, provider, scenario string, set ...string) *keptRuns {
	t.Helper()
	p, why, err := nodes.Choose(t.Context(), provider)
	if err != nil {
		t.Fatal(err)
	}
	found, err := scenarios.Load(scenario)
	if err != nil {
		t.Fatal(err)
	}
	s, err := found[0].With(set)
	if err != nil {
		t.Fatal(err)
	}
	g := &keptRuns{}
	g.options = engine.Options{
		Request: engine.Request{Scenario: s, Provider: p, Catalog: nodes.Catalog()}, ProviderReason: why, Out: t.TempDir(), Replay: "none", Kept: &engine.KeptServers{},
		Log: slog.New(slog.DiscardHandler), Progress: func(p engine.Progress) {
			if p.Text != "" {
				g.said = append(g.said, p.Text)
			}
		},
	}
	t.Cleanup(func() {
		if err := g.options.Kept.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// run makes one run, and returns its environment.
func (g *keptRuns) run(t *testing.T) results.Env {
	t.Helper()
	g.said = nil
	g.options.Started = time.Now()
	dir, err := engine.Run(t.Context(), g.options)
	if err != nil {
		t.Fatal(err)
	}
	env, err := results.ReadEnv(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(env.Unknown) > 0 || !env.Finished {
		t.Fatalf("the run has no answer: %v", env.Unknown)
	}
	if _, err := results.Judge(dir, checkers.All()); err != nil {
		t.Errorf("its directory cannot be judged by itself: %v", err)
	}
	for _, s := range g.options.Kept.Nodes() {
		if _, err := os.Stat(filepath.Join(dir, results.DirLogs, s.Name()+".log")); err != nil {
			t.Errorf("its directory does not have the log of %s: %v", s.Name(), err)
		}
	}
	return env
}

// mustBeKept demands that a run used the servers of an earlier one, with evidence.
func mustBeKept(t *testing.T, env results.Env) {
	t.Helper()
	if !env.Kept || env.Fresh != "" || env.KeptFrom == "" || len(env.KeptProof) < 6 {
		t.Errorf("kept %t from %q with the proof %v; %s", env.Kept, env.KeptFrom, env.KeptProof, env.Fresh)
	}
	for _, p := range env.KeptProof {
		if p.What == "" || p.Evidence == "" {
			t.Errorf("a proof without evidence: %+v", p)
		}
	}
}

// mustBeFresh demands that a run started its own servers, and reported all reasons.
func (g *keptRuns) mustBeFresh(t *testing.T, env results.Env, reasons ...string) {
	t.Helper()
	text := strings.Join(g.said, "\n")
	if env.Kept || !strings.Contains(text, "new servers are started: ") {
		t.Errorf("kept %t, and this was told: %s", env.Kept, text)
	}
	for _, why := range reasons {
		if !strings.Contains(env.Fresh, why) || !strings.Contains(text, why) {
			t.Errorf("fresh because %q; should be because of %q, and this was told: %s", env.Fresh, why, text)
		}
	}
}

// TestChangesBetweenRunsAreFound keeps the servers of a run and does one thing to them that no reset undoes. The
// next run must find it, start its own servers, and stop the old ones.
func TestChangesBetweenRunsAreFound(t *testing.T) {
	t.Parallel()
	g := newKeptRuns(t, "redis-clock-jump")
	if env := g.run(t); env.Kept || env.Fresh != "" {
		t.Fatalf("the first run is kept (%t), or fresh for a reason: %q", env.Kept, env.Fresh)
	}
	mustBeKept(t, g.run(t))
	for _, c := range []struct {
		name  string
		why   []string // all of them must be reported
		plant func(t *testing.T, n *cluster.Node)
	}{
		{"key", []string{`redis-1 has 1 keys, "dirty" among them`}, func(t *testing.T, n *cluster.Node) { redisSays(t, n, "SET dirty 1", "+OK") }},
		{"setting", []string{`redis-1 config maxmemory is "1048576" but was "0"`}, func(t *testing.T, n *cluster.Node) { redisSays(t, n, "CONFIG SET maxmemory 1mb", "+OK") }},
		{"clock", []string{"the clock of redis-1 is ", "s to 1m0", "s ahead of this machine, over its own protocol"}, func(t *testing.T, n *cluster.Node) {
			if _, err := n.Clock.ShiftClock(t.Context(), "planted", wall.Shift{Jump: time.Minute}); err != nil {
				t.Fatal(err)
			}
		}},
		{"rule", []string{"filter planted/redis-1 is active on redis-1"}, func(t *testing.T, n *cluster.Node) {
			if err := n.Links.Filter(t.Context(), "planted", []links.Rule{{Node: n.Name(), Port: 9, How: links.Drop}}); err != nil {
				t.Fatal(err)
			}
		}},
		{"table of a stranger", []string{"the links of redis-1 have ["}, plantTable},
		{"pause", []string{"redis-1 is stopped"}, func(t *testing.T, n *cluster.Node) {
			if _, err := n.Signals.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"death", []string{"redis-1 has no process"}, func(t *testing.T, n *cluster.Node) {
			if _, err := n.Signals.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := g.options.Kept.Nodes()
			if len(nodes) != 1 {
				t.Fatalf("%d servers stand", len(nodes))
			}
			c.plant(t, nodes[0])
			env := g.run(t)
			g.mustBeFresh(t, env, c.why...)
			t.Logf("fresh: %s", env.Fresh)
			if nodes[0].Process.Running() {
				t.Error("the server that was not kept still runs")
			}
		})
	}
	mustBeKept(t, g.run(t))
}

// redisConn connects to a Redis server and authenticates.
func redisConn(t *testing.T, n *cluster.Node) net.Conn {
	t.Helper()
	c, err := n.Dial(t.Context(), "client")
	if err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len("+OK\r\n"))
	_, err = io.WriteString(c, "AUTH "+n.Login().Password+"\r\n")
	if _, unread := io.ReadFull(c, answer); err != nil || unread != nil || string(answer) != "+OK\r\n" {
		t.Fatalf("the password of %s: %q, %v, %v", n.Name(), answer, err, unread)
	}
	return c
}

// redisSays sends a command and checks the answer.
func redisSays(t *testing.T, n *cluster.Node, command, want string) {
	t.Helper()
	c := redisConn(t, n)
	defer c.Close()
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len(want))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != want {
		t.Fatalf("%s: %q, %v", command, answer, err)
	}
}

// plantTable creates an empty packet filter table in the node's network namespace, unknown to the agent.
func plantTable(t *testing.T, n *cluster.Node) {
	t.Helper()
	space, err := os.Open("/proc/" + strconv.Itoa(n.Signals.PID()) + "/ns/net")
	if err != nil {
		t.Skipf("the node's network namespace cannot be entered from here: %v", err)
	}
	defer space.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(space.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	c.AddTable(&nftables.Table{Name: "stranger", Family: nftables.TableFamilyIPv4})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// strangers adds something to each service that no lock and no harness creates, and returns the service's name for it.
var strangers = map[string]func(t *testing.T, nodes []*cluster.Node) string{
	"redis": func(t *testing.T, nodes []*cluster.Node) string {
		redisSays(t, nodes[0], "SET dirty 1", "+OK")
		return `"dirty"`
	},
	"sentinel": func(t *testing.T, nodes []*cluster.Node) string {
		redisSays(t, nodes[0], "SET dirty 1", "+OK")
		return `"dirty"`
	},
	"rediscluster": clusterKey,
	"redlock": func(t *testing.T, nodes []*cluster.Node) string {
		redisSays(t, nodes[4], "SET dirty 1", "+OK")
		return `"dirty"`
	},
	"etcd": func(t *testing.T, nodes []*cluster.Node) string {
		body := `{"key":"ZGlydHk=","value":"MQ=="}` // dirty: 1
		r, err := http.Post("http://"+nodes[1].Address("client")+"/v3/kv/put", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Fatal(r.Status)
		}
		return `"dirty"`
	},
	"zookeeper": func(t *testing.T, nodes []*cluster.Node) string {
		c, _, err := zk.Connect([]string{nodes[2].Address("client")}, 5*time.Second, zk.WithLogInfo(false))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Create("/dirty", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		return "/dirty"
	},
	"postgres": func(t *testing.T, nodes []*cluster.Node) string {
		c, err := pgx.Connect(t.Context(), "postgres://lockquake:"+nodes[0].Login().Password+"@"+nodes[0].Address("client")+"/postgres?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		if _, err := c.Exec(t.Context(), "CREATE TABLE dirty (x int)"); err != nil {
			t.Fatal(err)
		}
		return "1 tables of others"
	},
}

// clusterKey sets a key on the primary that accepts it.
func clusterKey(t *testing.T, nodes []*cluster.Node) string {
	t.Helper()
	for i := range 1000 {
		key := fmt.Sprintf("dirty%d", i)
		c := redisConn(t, nodes[0])
		_, _ = io.WriteString(c, "SET "+key+" 1\r\n")
		answer := make([]byte, 3)
		_, err := io.ReadFull(c, answer)
		c.Close()
		if err == nil && string(answer) == "+OK" {
			return strconv.Quote(key)
		}
	}
	t.Fatal("no key is the first primary's")
	return ""
}

// TestEveryBackendIsKept runs a short load on every service, twice on the same servers. A foreign object must be found
// there afterwards.
func TestEveryBackendIsKept(t *testing.T) {
	t.Parallel()
	for _, b := range all.All() {
		if b.InProcess {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			if slices.Contains([]string{"redis", "rediscluster", "redlock", "zookeeper"}, b.Name) {
				leftToAll(t, "servers of Redis are kept under Sentinels, and members with a leader in etcd")
			}
			t.Parallel()
			set := []string{"run.for=700ms", "run.settle=100ms", "workload.clients=2", "workload.users=4"}
			if b.Name == "sentinel" {
				set = append(set, "backend.down_after=5s") // a stall of the machine must not cause a failover
			}
			g := newKeptRuns(t, b.Name+"-healthy", set...)
			g.run(t)
			env := g.run(t)
			mustBeKept(t, env)
			for _, p := range env.KeptProof {
				t.Logf("%s: %s", p.What, p.Evidence)
			}
			if strangers[b.Name] == nil {
				t.Fatal("strangers has no entry for it: how to put something there that is no lock's")
			}
			what := strangers[b.Name](t, g.options.Kept.Nodes())
			g.mustBeFresh(t, g.run(t), what)
		})
	}
}

// TestRepeat checks what a user sees: independent verdicts, kept servers, and no kept servers with --fresh.
func TestRepeat(t *testing.T) {
	t.Parallel()
	provider := setting("LOCKQUAKE_TEST_PROVIDER", "docker")
	for _, c := range []struct {
		flags []string
		kept  []bool
	}{{nil, []bool{false, true}}, {[]string{"--fresh"}, []bool{false, false}}} {
		p := begin(t, append([]string{"run", "redis-restart-amnesia", "--provider", provider, "--repeat", "2", "--format", "json"}, c.flags...)...)
		code := p.wait(t)
		gone(t, p)
		got := p.reports(t)
		if wantPassed(t, code, got); len(got) != len(c.kept) {
			t.Fatalf("%d reports", len(got))
		}
		for i, r := range got {
			if kept := c.kept[i]; r.Kept != kept || kept == (len(r.KeptProof) == 0) {
				t.Errorf("%v, run %d: kept %t, should be %t; proof %v", c.flags, i+1, r.Kept, kept, r.KeptProof)
			}
			checkAgain(t, r)
		}
	}
}

// TestServersServeAnotherScenario runs two scenarios that share only their kind of server. The second one uses the
// server process of the first, with other clients and another resource, and finds what was planted there.
func TestServersServeAnotherScenario(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"docker", "local"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			g := newKeptRunsOn(t, provider, "redis-restart-amnesia")
			other, err := found(t, "flash-sale").With([]string{"run.for=4s"})
			if err != nil {
				t.Fatal(err)
			}
			first := g.run(t)
			nodes := g.options.Kept.Nodes()
			if len(nodes) != 1 {
				t.Fatalf("%d servers stand", len(nodes))
			}
			pid := nodes[0].Signals.PID()
			g.options.Scenario = other
			second := g.run(t)
			mustBeKept(t, second)
			if now := g.options.Kept.Nodes(); len(now) != 1 || now[0] != nodes[0] || now[0].Signals.PID() != pid || pid == 0 {
				t.Errorf("the server was pid %d, and is %v", pid, now)
			}
			if len(first.Clients) == len(second.Clients) || second.Cluster["address_register"] != "" || second.Cluster["address_store"] == "" {
				t.Errorf("the nodes of the second run are not its own: %v", second.Cluster)
			}
			redisSays(t, nodes[0], "SET dirty 1", "+OK")
			g.options.Scenario = found(t, "redis-restart-amnesia")
			g.mustBeFresh(t, g.run(t), `redis-1 has 1 keys, "dirty" among them`)
			if nodes[0].Process.Running() {
				t.Error("the server that was not kept still runs")
			}
		})
	}
}

// TestInterruptOnKeptServers sends Ctrl-C in the second of two scenarios on one server.
func TestInterruptOnKeptServers(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"docker", "local"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := begin(t, "run", "setnx-crash", "del-cascade", "setnx-crash", "--provider", provider, "--format", "json")
			second := func() string { _, text, _ := strings.Cut(p.stderr.String(), "scenario 2 of 3"); return text }
			for end := time.Now().Add(2 * time.Minute); !strings.Contains(second(), "acquire"); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the second run had no step within 2 min\n%s", p.stderr.String())
				}
			}
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != cli.CodeInterrupted {
				t.Errorf("exit code %d, should be %d\n%s", code, cli.CodeInterrupted, p.stderr.String())
			}
			got := p.reports(t)
			if len(got) != 2 || got[0].Verdict != results.Pass || !got[1].Kept || got[1].Verdict == results.Pass {
				t.Errorf("%d runs: %+v", len(got), got)
			}
			gone(t, p)
		})
	}
}

// TestKeptServersForgetTheirFiles crashes a kept server whose RDB file contained the lock's key.
func TestKeptServersForgetTheirFiles(t *testing.T) {
	t.Parallel()
	p := begin(t, "run", "redis-restart-amnesia-stop", "redis-restart-amnesia-save-points", "--provider", "local", "--format", "json")
	code := p.wait(t)
	got := p.reports(t)
	if wantPassed(t, code, got); len(got) != 2 || !got[1].Kept {
		t.Errorf("%d runs: %+v", len(got), got)
	}
}
