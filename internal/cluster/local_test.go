package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/processes"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/cluster/testdata/testnode"
	"github.com/lockquake/lockquake/internal/node"
)

// nothingLeft looks for what a local run could have left behind.
func nothingLeft(t testing.TB, run string) {
	t.Helper()
	if _, err := os.Stat(state.Of(run)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run's directory is left: %v", err)
	}
	localLeft(t, run)
	engineLeft(t, run)
}

// engineLeft is set if tests have an engine.
var engineLeft = func(testing.TB, string) {}

func TestLocalOnLoopback(t *testing.T) {
	if err := proc.Supported(); err != nil {
		t.Skip(err)
	}
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	behaves(t, p, "tloop")
}

func TestLocalWithoutAgentSignalsByItself(t *testing.T) {
	if err := proc.Supported(); err != nil {
		t.Skip(err)
	}
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, "tnoagent")
	r.Agent = false
	c, err := p.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	startAll(t, c)
	serves(t, c.Node("echo-1"), "start 1")
	pauses(t, c.Node("echo-1"))
}

func TestLocalGoesOnWhenTheAgentDies(t *testing.T) {
	if err := proc.Supported(); err != nil {
		t.Skip(err)
	}
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Open(t.Context(), request(t, "tdeadagent"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	startAll(t, c)
	n := c.Node("echo-1")
	serves(t, n, "start 1")
	run := n.driver.(*localNode).run
	if err := run.agentProcess.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-run.agent.Ended()
	pauses(t, n)
}

func TestMissingProgramIsNamedBeforeAnythingStarts(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, "tmissing")
	r.Specs = append(r.Specs, node.Spec{Name: "redis-1", Role: node.Server, Command: func(node.Place) []string { return []string{"redis-server"} }})
	_, err = p.Open(t.Context(), r)
	var missing chaos.Unavailable
	if !errors.As(err, &missing) || missing.What != "redis-server" || !strings.Contains(missing.Reason, "apt-get install redis-server") {
		t.Errorf("a missing redis-server gives: %v", err)
	}
	nothingLeft(t, "tmissing")
}

func TestBadRequests(t *testing.T) {
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Request){
		"a run id too long":      func(r *Request) { r.Run = "abcdefghijk" },
		"a run id with a slash":  func(r *Request) { r.Run = "../x" },
		"two nodes of one name":  func(r *Request) { r.Specs = append(r.Specs, echoSpec("echo-1")) },
		"an image for processes": func(r *Request) { r.Images = map[string]string{"redis": "redis:7"} },
	} {
		r := request(t, "tbad")
		change(&r)
		if c, err := p.Open(t.Context(), r); err == nil {
			t.Errorf("%s was taken", what)
			_ = c.Close(context.Background())
		}
	}
	nothingLeft(t, "tbad")
}

func TestOffers(t *testing.T) {
	p, err := NewLocal(LocalOptions{Mechanisms: all.All()})
	if err != nil {
		t.Fatal(err)
	}
	if proc.Supported() == nil {
		for _, c := range []chaos.Capability{chaos.CanInspect, chaos.CanPause, process.CanKill} {
			if err := p.Offers(c, node.Client); err != nil {
				t.Errorf("%s of a client: %v", c, err)
			}
		}
	}
	if err := p.Offers(chaos.CanStart, node.Server); err != nil {
		t.Error(err)
	}
	inproc := NewInproc(nil)
	for what, err := range map[string]error{
		"a client's second start": p.Offers(chaos.CanStart, node.Client),
		"an unknown capability":   p.Offers("fly", node.Server),
		"pausing a goroutine":     inproc.Offers(chaos.CanPause, node.Client),
	} {
		if !errors.As(err, new(chaos.Unavailable)) {
			t.Errorf("%s gives %v", what, err)
		}
	}
}

func TestInproc(t *testing.T) {
	p := NewInproc(testnode.Main)
	c, err := p.Open(t.Context(), request(t, "tinproc"))
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := state.ReadOwner(state.Of("tinproc")); !ok || o.Run != "tinproc" || o.PID != os.Getpid() {
		t.Errorf("the run's directory, should it be left, belongs to %+v", o)
	}
	startAll(t, c)
	one := c.Node("echo-1")
	serves(t, one, "start 1")
	n := c.Node("client-1")
	s := stream{t, n.Process.Stdio(), bufio.NewReader(n.Process.Stdio().Out)}
	if got := s.line(); got != "hello" {
		t.Errorf("the client says %q", got)
	}
	if got := s.ask("dial " + one.Address("main")); got != "start 1" {
		t.Errorf("dialling gives %q", got)
	}
	for what, f := range map[string]func(context.Context) (chaos.ProcessState, error){
		"pause": one.Signals.Pause, "kill": one.Signals.Kill, "resume": one.Signals.Resume, "inspect": one.Signals.Inspect,
	} {
		if _, err := f(t.Context()); !errors.As(err, new(chaos.Unavailable)) {
			t.Errorf("%s gives %v", what, err)
		}
	}
	_ = s.stdio.In.Close()
	<-n.Process.Exited()
	if _, err := s.lines.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after its end the stream gives %v", err)
	}
	for range 2 {
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if one.Process.Running() {
		t.Error("a node runs after Close")
	}
}

func TestSweepKillsStoppedOrphansOnly(t *testing.T) {
	if err := proc.Supported(); err != nil {
		t.Skip(err)
	}
	t.Setenv("TMPDIR", t.TempDir()) // otherwise it finds other runs, and they find these
	start := func(o owner.Mark, recorded bool) proc.Process {
		if recorded {
			dir, err := state.Make(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
		}
		cmd := exec.Command("sleep", "60")
		cmd.Env = append(os.Environ(), processes.OwnerVariable+o.Tag(), "LOCKQUAKE_NODE=n")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		go func() { _ = cmd.Wait() }()
		p, err := proc.Find(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal("STOP"); err != nil {
			t.Fatal(err)
		}
		return p
	}
	mine, theirs, kept := owner.Self("tlive", false), owner.Self("tdead", false), owner.Self("tkept", true)
	theirs.Start++ // the pid was reused: that supervisor is dead
	kept.Start++
	forged := theirs
	forged.Run = "tforged" // no such run is recorded
	live, orphan, keep, stranger := start(mine, true), start(theirs, true), start(kept, true), start(forged, false)
	wrong := theirs
	wrong.Start++ // a run of that name is recorded, and not this one
	other := start(wrong, false)
	var s Swept
	if err := s.processes(t.Context(), SweepOptions{Mechanisms: all.All()}); err != nil {
		t.Fatal(err)
	}
	gone(t, orphan)
	if !live.Alive() || !keep.Alive() || !stranger.Alive() || !other.Alive() {
		t.Errorf("swept too much: %v", s.Processes)
	}
	if len(s.Processes) == 0 || !strings.Contains(strings.Join(s.Processes, "\n"), "n of run tdead") {
		t.Errorf("swept: %v", s.Processes)
	}
	if !strings.Contains(strings.Join(s.Left, "\n"), "tkept") {
		t.Errorf("left: %v", s.Left)
	}
}

// TestProxyVariables: the run's own servers are reached directly, whatever the environment says; external ones as it
// says.
func TestProxyVariables(t *testing.T) {
	for _, name := range proxyVariables {
		t.Setenv(name, "http://192.0.2.1:3128")
	}
	for _, c := range []struct {
		role    node.Role
		proxied bool
	}{{node.Server, false}, {node.Client, true}} {
		r := &localRun{request: Request{Run: "tproxy", Specs: []node.Spec{{Name: "one", Role: c.role}}}, owner: owner.Self("tproxy", false)}
		if has := strings.Contains(strings.Join(r.environment(command{name: "one"}), " "), "192.0.2.1"); has != c.proxied {
			t.Errorf("nodes beside a %s have the variables: %t", c.role, has)
		}
		if told := r.request.proxies(); (told != "") != c.proxied || c.proxied && !strings.HasPrefix(told, "HTTP_PROXY, HTTPS_PROXY") {
			t.Errorf("beside a %s it is told: %q", c.role, told)
		}
	}
}
