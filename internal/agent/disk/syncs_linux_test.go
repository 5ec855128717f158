package disk

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// syncer is a program that syncs, and an agent in a process of its own that can delay that.
type syncer struct {
	t     *testing.T
	agent *agent.Client
	cmd   *exec.Cmd // the agent's process
	p     proc.Process
	in    io.Writer
	out   *bufio.Reader
}

func newSyncer(t *testing.T) *syncer {
	t.Helper()
	s := &syncer{t: t}
	cmd, in, out := agenttest.Child(t, t.TempDir()+"/data")
	s.in, s.out = in, bufio.NewReader(out)
	var agentIn io.WriteCloser
	s.cmd, agentIn, out = agenttest.Child(t, "agent")
	var err error
	if s.agent, err = agent.Connect(t.Context(), agentIn, out); err != nil {
		t.Fatal(err)
	}
	if s.p, err = s.agent.Own(t.Context(), cmd.Process.Pid, false); err != nil {
		t.Fatal(err)
	}
	s.sync()
	return s
}

// begin asks for a sync.
func (s *syncer) begin() {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, "sync"); err != nil {
		s.t.Fatal(err)
	}
}

// end returns how long a sync took.
func (s *syncer) end() time.Duration {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	var took time.Duration
	if err == nil {
		_, err = fmt.Sscan(line, &took)
	}
	if err != nil {
		s.t.Fatalf("%q: %v", line, err)
	}
	return took
}

func (s *syncer) sync() time.Duration {
	s.t.Helper()
	s.begin()
	return s.end()
}

func (s *syncer) hold(key string, by time.Duration) {
	s.t.Helper()
	var out disk.Syncs
	err := s.agent.Order(s.t.Context(), agent.Order{Do: disk.DoSyncs, Process: s.p, Key: key, Args: disk.SyncsArgs{By: time.Duration(by)}}, &out)
	if err != nil && strings.Contains(err.Error(), "operation not permitted") {
		s.t.Skip("processes cannot be traced here: ", err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *syncer) synced() disk.Syncs {
	s.t.Helper()
	var out disk.Syncs
	if err := s.agent.Order(s.t.Context(), agent.Order{Do: disk.DoSynced, Process: s.p}, &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// holding waits until a call is held.
func (s *syncer) holding() {
	s.t.Helper()
	wait.Until(s.t, agenttest.Patience, "a call is held", func() bool { return s.synced().Holding > 0 })
}

func (s *syncer) undo(key string) disk.Syncs {
	s.t.Helper()
	var out disk.Syncs
	if err := s.agent.Undo(s.t.Context(), key, &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// long is half of the minute by which an unreleased sync is delayed: no sync takes that long by itself, even on a busy
// machine.
const long = 30 * time.Second

func TestSyncsAreHeldAndLetGo(t *testing.T) {
	s := newSyncer(t)
	s.hold("a", 100*time.Millisecond)
	s.hold("b", 200*time.Millisecond)
	if took := s.sync(); took < 300*time.Millisecond {
		t.Errorf("a sync took %v, with two that hold it for 300 ms", took)
	}
	s.undo("b")
	if took := s.sync(); took < 100*time.Millisecond {
		t.Errorf("a sync took %v, with one that holds it for 100 ms", took)
	}
	now := s.synced()
	if now.Calls != 2 || now.Holding != 0 || now.Early != 0 || now.Traced < 2 || now.Least < 100*time.Millisecond {
		t.Errorf("told: %+v", now)
	}
	s.hold("b", time.Minute)
	s.begin()
	s.holding()
	if left := s.undo("b"); left.Traced == 0 { // one order is active
		t.Errorf("told: %+v", left)
	}
	if left := s.undo("a"); left.Traced != 0 || left.Holding != 0 || left.Early != 1 || left.Gone {
		t.Errorf("told: %+v", left)
	}
	if took := s.end(); took > long {
		t.Errorf("it was not let go: %v", took)
	}
}

func TestAPauseIsSeenWhileSyncsAreHeld(t *testing.T) {
	s := newSyncer(t)
	s.hold("a", time.Minute)
	s.begin()
	s.holding()
	for range 2 { // as two pauses that overlap
		if err := s.agent.Signal(t.Context(), s.p, "STOP"); err != nil {
			t.Fatal(err)
		}
		agenttest.Until(t, s.p, "stopped", agenttest.Stopped)
	}
	s.hold("b", time.Minute) // another one while it is stopped
	s.undo("a")
	agenttest.Until(t, s.p, "stopped", agenttest.Stopped)
	if err := s.agent.Signal(t.Context(), s.p, "CONT"); err != nil {
		t.Fatal(err)
	}
	s.end()
	s.begin()
	s.holding() // it is traced again
	s.undo("b")
	s.end()
}

func TestAHeldProcessDies(t *testing.T) {
	s := newSyncer(t)
	s.hold("a", time.Minute)
	s.begin()
	s.holding()
	if err := s.agent.Signal(t.Context(), s.p, "KILL"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, s.p, "gone", func(s node.State) bool { return s.PID == 0 || s.Threads["Z"] > 0 && len(s.Threads) == 1 })
	if out := s.undo("a"); !out.Gone {
		t.Errorf("told: %+v", out)
	}
}

func TestAHeldProcessCanHaveItsClockMoved(t *testing.T) {
	s := newSyncer(t)
	s.hold("a", time.Minute)
	s.begin()
	s.holding()
	if err := s.agent.Order(t.Context(), agent.Order{Do: wall.DoClock, Process: s.p, Key: "clock", Args: wall.Shift{Jump: time.Duration(time.Hour)}}, nil); err != nil {
		t.Fatal(err)
	}
	s.end() // let go early
	s.begin()
	s.holding()
	if err := s.agent.Undo(t.Context(), "clock", nil); err != nil {
		t.Fatal(err)
	}
	s.end()
	if out := s.undo("a"); out.Calls != 2 || out.Early != 2 || out.Traced != 0 {
		t.Errorf("told: %+v", out)
	}
}

func TestTheEndOfTheAgentLetsSyncsGo(t *testing.T) {
	for what, end := range map[string]func(*syncer){
		"its control stream ends": func(s *syncer) { _ = s.agent.Close() },
		"it is killed":            func(s *syncer) { _ = s.cmd.Process.Kill() },
	} {
		s := newSyncer(t)
		s.hold("a", time.Minute)
		s.begin()
		s.holding()
		begin := time.Now()
		end(s)
		s.end()
		if took := time.Since(begin); took > long {
			t.Errorf("%s: let go after %v", what, took)
		}
		s.sync() // it lives
	}
}
