package cluster

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/agent"
)

// abandon starts a supervisor of the named provider, waits until it has paused two nodes, and kills it. look is called
// before. It returns the paused processes.
func abandon(t *testing.T, provider, run, binary string, look func()) []agent.Process {
	t.Helper()
	cmd := exec.Command(testBinary(t), "-test.run=^$")
	cmd.Env = append(os.Environ(), supervisorVariable+"="+provider, supervisorVariable+"_RUN="+run,
		supervisorVariable+"_LOGS="+filepath.Join(t.TempDir(), "logs"), supervisorVariable+"_BIN="+binary)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	var paused, frozen []agent.Process
	lines := bufio.NewScanner(out)
	for len(paused) < 2 && lines.Scan() {
		number, frost := strings.CutPrefix(lines.Text(), "frozen ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("the supervisor says %q", lines.Text())
		}
		p, err := agent.Find(pid)
		if err != nil {
			t.Fatalf("find process %d: %v", pid, err)
		}
		if frost {
			if f, err := p.Frozen(); err != nil || !f.Frozen {
				t.Fatalf("process %d is %+v, %v", pid, f, err)
			}
			frozen = append(frozen, p)
			continue
		}
		if s, err := p.Inspect(); err != nil || !observed(s).Stopped() {
			t.Fatalf("process %d is %v, %v", pid, s, err)
		}
		paused = append(paused, p)
	}
	if len(paused) < 2 {
		t.Fatal("the supervisor paused nothing")
	}
	look()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return append(paused, frozen...)
}

// gone waits until a process has ended or lies unreaped.
func gone(t *testing.T, p agent.Process) {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if s, err := p.Inspect(); err == nil && observed(s).Gone() {
			return
		}
	}
	t.Errorf("process %d lives 2 s after its supervisor was killed", p.PID)
}

// orphans runs the test of a killed supervisor with a local provider.
func orphans(t *testing.T, provider, run string) {
	if err := agent.Supported(); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(stateDirName(), run)
	paused := abandon(t, provider, run, testBinary(t), func() {
		var s Swept
		if err := s.local(t.Context(), SweepOptions{All: true}); err != nil {
			t.Error(err)
		}
		if strings.Contains(strings.Join(append(append(s.Processes, s.Links...), s.Directories...), " "), run) {
			t.Errorf("the things of a running supervisor were swept: %+v", s)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	})
	for _, p := range paused {
		gone(t, p) // without any sweep: the kernel kills them, stopped as they are
	}
	var swept Swept // not by Sweep, which would also judge the engine's things of other runs
	if err := swept.local(t.Context(), SweepOptions{}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(strings.Join(swept.Directories, " "), dir) {
		t.Errorf("swept %v: %+v", swept, swept)
	}
	if left, err := agent.RestoreFrozen(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("behind the sweep there was still %v, %v", left, err)
	}
	nothingLeft(t, run)
}

func TestKilledSupervisorOnLoopback(t *testing.T) { orphans(t, "loopback", "tkillloop") }

// goesOn waits until a stopped process was continued (or has ended since) by the agent that lost its supervisor.
func goesOn(t *testing.T, p agent.Process) {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		s, err := p.Inspect()
		f, failed := p.Frozen()
		if err == nil && failed == nil && s.Threads["T"] == 0 && !f.Frozen {
			return
		}
	}
	t.Errorf("process %d is still stopped or frozen 2 s after its supervisor was killed", p.PID)
}
