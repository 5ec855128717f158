package cluster

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/address"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/cluster/placement"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// TestLeftoversEndWithTheirNode: a client's child holds its control stream from its own session. In a namespace
// of its own it also has another environment.
func TestLeftoversEndWithTheirNode(t *testing.T) {
	t.Parallel()
	for run, c := range map[string]struct {
		loopback bool
		begin    string
	}{"tleftns": {false, "setsid env -i"}, "tleftloop": {true, "setsid"}} {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			if err := netspace.Probe(); err != nil && !c.loopback {
				t.Skip(err)
			}
			p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t), Loopback: c.loopback})
			if err != nil {
				t.Fatal(err)
			}
			leaves := node.Spec{Name: "client-1", Role: node.Client, Stdio: true, Command: func(node.Place) []string {
				return []string{"sh", "-c", c.begin + " sleep 600 & echo $!; read line"}
			}}
			cl, err := p.Open(t.Context(), Request{Run: run, LogDir: t.TempDir(), Specs: []node.Spec{stdioSpec("client-2"), leaves}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cl.Close(context.Background()) }()
			startAll(t, cl)
			n := cl.Node("client-1")
			out := bufio.NewReader(n.Process.Stdio().Out)
			line, err := out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, _ := strconv.Atoi(strings.TrimSpace(line))
			left, err := proc.Find(pid)
			if err != nil || !wait.Within(patience, func() bool { return left.Command() == "sleep" }) {
				t.Fatalf("process %q: %v: this test shows nothing", line, err)
			}
			_ = n.Process.Stdio().In.Close()
			if rest, err := io.ReadAll(out); len(rest) > 0 || err != nil { // otherwise open as long as the child holds it
				t.Errorf("its stream goes on with %q, %v", rest, err)
			}
			<-n.Process.Exited()
			if left.Running() {
				t.Errorf("process %d lives on", pid)
			}
			if told := n.Process.LeftBehind(); len(told) != 1 || !strings.Contains(told[0], "its leftover processes were killed: sleep (pid "+strconv.Itoa(pid)+")") {
				t.Errorf("told: %q", told)
			}
			if other := cl.Node("client-2"); !other.Process.Running() || other.Process.LeftBehind() != nil {
				t.Errorf("beside it another node runs: %t, and left behind %q", other.Process.Running(), other.Process.LeftBehind())
			}
			if err := cl.Close(context.Background()); err != nil {
				t.Error(err)
			}
			nothingLeft(t, run)
		})
	}
}

// TestSweepFindsLeftoversInANamespace: a process of a dead supervisor's node, without marks in its environment.
func TestSweepFindsLeftoversInANamespace(t *testing.T) {
	if err := netspace.Probe(); err != nil {
		t.Skip(err)
	}
	t.Setenv("TMPDIR", t.TempDir()) // otherwise it finds other runs
	dead, alive := owner.Self("tnsdead", false), owner.Self("tnsalive", false)
	dead.Start++
	begin := func(o owner.Mark) proc.Process {
		if _, err := state.Make(o); err != nil {
			t.Fatal(err)
		}
		thread := netspace.NewThread()
		t.Cleanup(thread.Close)
		h, err := netspace.NewHub(thread, address.Subnet(o.Run, 0), 1, o.Tag())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		cmd := exec.Command("sleep", "600")
		cmd.Env, cmd.SysProcAttr = []string{"A=b"}, placement.Attributes(false)
		if err := (placement.Place{Hub: h}).Start(thread, cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		go func() { _ = cmd.Wait() }()
		p, err := proc.Find(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	left, works := begin(dead), begin(alive)
	var s Swept
	if err := s.processes(t.Context(), SweepOptions{Mechanisms: all.All()}); err != nil {
		t.Fatal(err)
	}
	gone(t, left)
	if !works.Running() {
		t.Errorf("swept too much: %v", s.Processes)
	}
	if told := strings.Join(s.Processes, "\n"); !strings.Contains(told, "of run tnsdead (pid "+strconv.Itoa(left.PID)+")") {
		t.Errorf("swept: %v", s.Processes)
	}
}
