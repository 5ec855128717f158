package cluster

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/cluster/testdata/testnode"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// supervisorVariable makes the test binary a supervisor that will be killed; its value names the provider.
const supervisorVariable = "LOCKQUAKE_TEST_SUPERVISOR"

// TestMain lets the test binary be lockquake's own binary: a node, or a supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		if err := testnode.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if provider := os.Getenv(supervisorVariable); provider != "" {
		if err := supervise(provider); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("LOCKQUAKE_TEST_NETEM") != "required" { // the guest of make test-netem is slow
		_ = flag.Set("test.parallel", "4") // unless told otherwise: they wait for links and containers, not for a processor
	}
	code := m.Run()
	for _, f := range atExit {
		f()
	}
	os.Exit(code)
}

// atExit is run after the last test.
var atExit []func()

func testBinary(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func echoSpec(name string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Server, Image: node.SelfProgram, Restartable: true,
		Ports: []node.Port{{Name: "main", Number: 7000}, {Name: "spare", Number: 7001}},
		Command: func(p node.Place) []string {
			return []string{node.SelfProgram, "echo", p.Address(p.Self, "main"), p.Dir}
		},
	}
}

func stdioSpec(name string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Client, Image: node.SelfProgram, Stdio: true,
		Command: func(node.Place) []string { return []string{node.SelfProgram, "stdio"} },
	}
}

func request(t testing.TB, run string) Request {
	t.Helper()
	return Request{
		Run: run, LogDir: filepath.Join(t.TempDir(), "logs"), Agent: true, Reuse: true,
		Specs: []node.Spec{echoSpec("echo-1"), echoSpec("echo-2"), stdioSpec("client-1")},
	}
}

// behaves tests a provider of real processes. run must be unused.
func behaves(t *testing.T, p Provider, run string) {
	req := request(t, run)
	c, err := p.Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Logf("described as %v", c.Describe)
	startAll(t, c)
	one, two := c.Node("echo-1"), c.Node("echo-2")
	for _, n := range []*Node{one, two} {
		serves(t, n, "start 1")
	}
	if one.Address("main") == two.Address("main") {
		t.Fatalf("two nodes share the address %s", one.Address("main"))
	}
	control := streams(t, c, req)
	if got := control.ask("dial " + two.Address("main")); got != "start 1" {
		t.Errorf("a client that dials echo-2 at %s gets %q", two.Address("main"), got)
	}
	t.Run("pause", func(t *testing.T) { pauses(t, one) })
	_, alone := p.(*docker) // covered by TestEngineFreezes
	cannotFreeze := p.Offers(process.CanFreeze, node.Server)
	if cannotFreeze == nil && !alone {
		t.Run("freeze", func(t *testing.T) { freezes(t, one) })
	} else {
		t.Log(cannotFreeze)
	}
	t.Run("restart", func(t *testing.T) { restarts(t, one) })
	if got := control.ask("dial " + one.Address("main")); got != "start 2" {
		t.Errorf("a client that dials the restarted echo-1 gets %q", got)
	}
	t.Run("stop", func(t *testing.T) { stops(t, two) })
	t.Run("kill while paused", func(t *testing.T) { killsPaused(t, c.Node("client-1")) })
	t.Run("renew", func(t *testing.T) { renews(t, c, req) })
	if _, err := two.Signals.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cannotFreeze == nil && !alone {
		if err := two.Signals.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := c.Close(cancelled); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	if one.Process.Running() || two.Process.Running() {
		t.Error("a node runs after Close")
	}
	nothingLeft(t, run)
}

// renews gives the cluster to other runs, with more nodes and with fewer besides its servers. A client reaches all of
// them at the addresses of earlier nodes.
func renews(t *testing.T, c *Cluster, req Request) {
	one, two := c.Node("echo-1"), c.Node("echo-2")
	resource := echoSpec("other")
	resource.Role = node.Resource
	for _, specs := range [][]node.Spec{{resource, stdioSpec("client-2"), stdioSpec("client-1")}, {stdioSpec("client-1")}} {
		if err := c.Vacate(t.Context()); err != nil {
			t.Fatal(err)
		}
		req.LogDir = filepath.Join(t.TempDir(), "logs")
		if err := c.Renew(t.Context(), Request{Specs: append(req.Specs[:2:2], specs...), LogDir: req.LogDir}); err != nil {
			t.Fatal(err)
		}
		if len(c.Nodes) != 2+len(specs) || c.Nodes[0] != one || c.Nodes[1] != two || !one.Process.Running() || !two.Process.Running() {
			t.Fatalf("%d nodes, or the servers are others", len(c.Nodes))
		}
		if err := StartAll(t.Context(), c.Nodes[2:]); err != nil {
			t.Fatal(err)
		}
		control := streams(t, c, req)
		if got := control.ask("dial " + one.Address("main")); got != "start 2" {
			t.Errorf("another run's client that dials echo-1 gets %q", got)
		}
		other := c.Node("other")
		if _, told := c.Describe["address_other"]; told != (len(specs) > 1) || told != (other != nil) {
			t.Errorf("other is %v, and described: %v", other, c.Describe)
		}
		if other == nil {
			continue
		}
		serves(t, other, "start 1")
		if got := control.ask("dial " + other.Address("main")); got != "start 1" {
			t.Errorf("a client that dials other gets %q", got)
		}
	}
	if err := c.Renew(t.Context(), Request{Specs: []node.Spec{stdioSpec("client-1"), req.Specs[0]}, LogDir: req.LogDir}); err == nil {
		t.Error("a server behind a client is let pass")
	}
}

func startAll(t testing.TB, c *Cluster) time.Duration {
	t.Helper()
	begin := time.Now()
	var wg sync.WaitGroup
	// The context ends with the start, as that of an errgroup does: no process may end with it.
	ctx, cancel := context.WithCancel(t.Context())
	for _, n := range c.Nodes {
		wg.Go(func() {
			if err := n.Process.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	cancel()
	return time.Since(begin)
}

// greeting dials a node and reads its first line.
func greeting(ctx context.Context, n *Node, patience time.Duration) (string, error) {
	conn, err := n.Dial(ctx, "main")
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

// serves waits until the node greets as wanted.
func serves(t testing.TB, n *Node, want string) {
	t.Helper()
	var got string
	var err error
	wait.Within(patience, func() bool { got, err = greeting(t.Context(), n, time.Second); return err == nil })
	if err != nil || got != want {
		t.Fatalf("%s at %s greets with %q, %v; want %q", n.Name(), n.Address("main"), got, err, want)
	}
}

// stream is the test's end of a control stream.
type stream struct {
	t     *testing.T
	stdio Stdio
	lines *bufio.Reader
}

func (s stream) line() string {
	s.t.Helper()
	line, err := s.lines.ReadString('\n')
	if err != nil {
		s.t.Fatalf("read the control stream: %v", err)
	}
	return strings.TrimSpace(line)
}

func (s stream) ask(question string) string {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.stdio.In, question); err != nil {
		s.t.Fatalf("write the control stream: %v", err)
	}
	return s.line()
}

// streams tries the control stream and checks that only standard error went to the log.
func streams(t *testing.T, c *Cluster, r Request) stream {
	t.Helper()
	n := c.Node("client-1")
	s := stream{t, n.Process.Stdio(), bufio.NewReader(n.Process.Stdio().Out)}
	if got := s.line(); got != "hello" {
		t.Fatalf("the client says %q first", got)
	}
	if got := s.ask("one"); got != "echo one" {
		t.Fatalf("the client answers %q", got)
	}
	var log []byte
	var err error
	wait.Within(patience, func() bool { // engines deliver standard error and output separately
		log, err = os.ReadFile(filepath.Join(r.LogDir, "client-1.log"))
		return err != nil || len(log) > 0
	})
	if err != nil || string(log) != "stdio is up\n" {
		t.Errorf("the client's log holds %q, %v", log, err)
	}
	return s
}

func pauses(t *testing.T, n *Node) {
	ctx := t.Context()
	before, err := n.Signals.Inspect(ctx)
	if err != nil || before.Gone() || before.Stopped() {
		t.Fatalf("before the pause: %v, %v", before, err)
	}
	begin := time.Now()
	state, err := n.Signals.Pause(ctx)
	t.Logf("paused in %v: %v", time.Since(begin), state)
	if err != nil || !state.Stopped() || state.Threads["T"] < 2 || state.Time == 0 {
		t.Fatalf("paused: %v, %v", state, err)
	}
	if got, err := greeting(ctx, n, 200*time.Millisecond); err == nil {
		t.Errorf("a paused node greets with %q", got)
	}
	var timeout net.Error
	if _, err := greeting(ctx, n, 100*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a paused node should take the connection and stay silent: %v", err)
	}
	if again, err := n.Signals.Inspect(ctx); err != nil || !again.Stopped() || again.PID != before.PID {
		t.Errorf("looked at again: %v, %v", again, err)
	}
	state, err = n.Signals.Resume(ctx)
	if err != nil || state.Stopped() || state.Gone() {
		t.Fatalf("resumed: %v, %v", state, err)
	}
	serves(t, n, "start 1")
}

func restarts(t *testing.T, n *Node) {
	ctx := t.Context()
	addr, exited := n.Address("main"), n.Process.Exited()
	if err := n.Process.Start(ctx); err == nil {
		t.Error("a running node was started")
	}
	begin := time.Now()
	state, err := n.Signals.Kill(ctx)
	t.Logf("killed in %v", time.Since(begin))
	if err != nil || !state.Gone() || n.Process.Running() {
		t.Fatalf("killed: %v, %v, running %t", state, err, n.Process.Running())
	}
	select {
	case <-exited:
	default:
		t.Error("Exited is open after Kill")
	}
	if state, err := n.Signals.Kill(ctx); err != nil || !state.Gone() {
		t.Errorf("killed twice: %v, %v", state, err)
	}
	if _, err := n.Signals.Pause(ctx); err == nil {
		t.Error("a dead node was paused")
	}
	if got, err := greeting(ctx, n, 100*time.Millisecond); err == nil {
		t.Errorf("a dead node greets with %q", got)
	}
	begin = time.Now()
	if err := n.Process.Start(ctx); err != nil {
		t.Fatal(err)
	}
	serves(t, n, "start 2") // the data of the first start
	t.Logf("started again and serving in %v", time.Since(begin))
	if n.Address("main") != addr {
		t.Errorf("the address was %s and is %s", addr, n.Address("main"))
	}
	if state, err := n.Signals.Inspect(ctx); err != nil || state.Gone() {
		t.Errorf("the new process is seen as %v, %v", state, err)
	}
}

func killsPaused(t *testing.T, n *Node) {
	ctx := t.Context()
	if _, err := n.Signals.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if state, err := n.Signals.Kill(ctx); err != nil || !state.Gone() {
		t.Fatalf("killed: %v, %v", state, err)
	}
	if err := n.Process.Start(ctx); err == nil {
		t.Error("a client was started a second time")
	}
	if rest, err := bufio.NewReader(n.Process.Stdio().Out).ReadString('\n'); err == nil {
		t.Errorf("a dead client says %q", rest)
	}
}
