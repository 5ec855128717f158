package clock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

func readClocks(t *testing.T, c *agent.Client, p proc.Process) wall.Readings {
	t.Helper()
	var out wall.Readings
	if err := c.Order(t.Context(), agent.Order{Do: wall.DoReadClocks, Process: p}, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// wantRead checks that a process reads its wall clock ahead by want, and the monotonic clock of this machine.
func wantRead(t *testing.T, c *agent.Client, p proc.Process, what string, want time.Duration) {
	t.Helper()
	wall, mono := hostTime(), clock.Now()
	got := readClocks(t, c, p)
	wallAfter, monoAfter := hostTime(), clock.Now()
	if got.Wall < wall+int64(want) || got.Wall > wallAfter+int64(want) {
		t.Errorf("%s: it reads its wall clock ahead by %v to %v, want %v", what, time.Duration(got.Wall-wallAfter), time.Duration(got.Wall-wall), want)
	}
	if got.Mono < mono || got.Mono > monoAfter {
		t.Errorf("%s: it reads its monotonic clock as %d, ours went from %d to %d", what, got.Mono, mono, monoAfter)
	}
}

func borrowing(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skipf("calls are borrowed on amd64 only, this is %s", runtime.GOARCH)
	}
}

// TestReadsItsOwnClocks makes busy and idle programs read their clocks, often, and checks that they run on undisturbed.
func TestReadsItsOwnClocks(t *testing.T) {
	borrowing(t)
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	wantRead(t, c, p, "idle", 0)
	child.ask("spin")
	reads := child.ask("")[3]
	for range 50 {
		wantRead(t, c, p, "busy", 0)
	}
	shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(time.Hour)})
	for range 50 {
		wantRead(t, c, p, "shifted", time.Hour)
	}
	unshift(t, c, "a")
	wantRead(t, c, p, "healed", 0)
	child.wantAhead("after it all", 0)
	if now := child.ask("")[3]; now <= reads {
		t.Errorf("its threads stand still: %d reads, were %d", now, reads)
	}
}

// TestReadsTheClocksOfStarters asks programs that were just started, and may not yet have a thread to borrow.
func TestReadsTheClocksOfStarters(t *testing.T) {
	t.Parallel()
	borrowing(t)
	for range 100 {
		child := goTeller(t)
		p, err := proc.Find(child.cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&mover{}).doReadClocks(t.Context(), agent.Call{Process: p}); err != nil {
			t.Fatal(err)
		}
		_ = child.cmd.Process.Kill()
	}
}

// TestReadsTheClocksOfSleepers: system calls that a process waits in are undisturbed, and a stopped process is refused.
func TestReadsTheClocksOfSleepers(t *testing.T) {
	borrowing(t)
	t.Parallel()
	const sleeps = 3 * time.Second // the questions meanwhile take a tenth of that, and more on a busy machine
	begin := time.Now()
	cmd := exec.Command("sleep", fmt.Sprint(sleeps.Seconds()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	c, p := clockAgent(t, cmd.Process.Pid)
	agenttest.Until(t, p, "asleep", func(s node.State) bool { return s.Threads["S"] == 1 })
	for range 20 {
		wantRead(t, c, p, "asleep", 0)
	}
	if err := c.Signal(t.Context(), p, "STOP"); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "stopped", func(s node.State) bool { return s.Threads["T"] == 1 })
	if err := c.Order(t.Context(), agent.Order{Do: wall.DoReadClocks, Process: p}, nil); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("a stopped process was asked: %v", err)
	}
	agenttest.Until(t, p, "stopped still", func(s node.State) bool { return s.Threads["T"] == 1 })
	if err := c.Signal(t.Context(), p, "CONT"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("it ended with %v", err)
	}
	if slept := time.Since(begin); slept < sleeps {
		t.Errorf("it slept %v of %v", slept, sleeps)
	}
}

// TestPatchOutlivesExec patches a shell that becomes another program.
func TestPatchOutlivesExec(t *testing.T) {
	borrowing(t)
	t.Parallel()
	cmd := exec.Command("sh", "-c", "read line; exec sleep 60")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c, p := clockAgent(t, cmd.Process.Pid)
	shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(time.Hour)})
	wantRead(t, c, p, "the shell", time.Hour)
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, agenttest.Patience, "what the shell became is patched too", func() bool {
		comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/comm")
		return err == nil && string(comm) == "sleep\n" && readClocks(t, c, p).Wall > hostTime()+int64(30*time.Minute)
	})
	wantRead(t, c, p, "what it became", time.Hour)
	unshift(t, c, "a")
	time.Sleep(3 * keepEvery)
	wantRead(t, c, p, "healed", 0)
}

// TestDriftGoesOn gives a process the drift that began with its predecessor.
func TestDriftGoesOn(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	since := hostTime() - int64(time.Hour)
	out := shiftBy(t, c, p, "a", wall.Shift{Gain: 0.5, Since: since})
	if want := int64(30 * time.Minute); out.Since != since || out.Offset < want || out.Offset > want+int64(time.Minute) {
		t.Errorf("the agent says %+v", out)
	}
}

// TestClockFileIsWrittenAndUndone checks that the libfaketime file is written and undone.
func TestClockFileIsWrittenAndUndone(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	file := filepath.Join(t.TempDir(), "clock")
	want := func(text string) {
		t.Helper()
		b, err := os.ReadFile(file)
		if _, shift, _ := strings.Cut(string(b), "\n"); err != nil || shift != text {
			t.Errorf("the file says %q (%v), want %q", shift, err, text)
		}
	}
	out := shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(90 * time.Second), File: file})
	want("+90.000000000\n")
	if !strings.Contains(out.How, "not loaded") {
		t.Errorf("the agent says %+v of a process without libfaketime", out)
	}
	shiftBy(t, c, p, "b", wall.Shift{Jump: time.Duration(-90*time.Second - 250*time.Millisecond), File: file})
	want("-0.250000000\n")
	unshift(t, c, "a")
	want("-90.250000000\n")
	unshift(t, c, "b")
	want("+0.000000000\n")
	child.wantAhead("a Go program", 0)
	if err := c.Order(t.Context(), agent.Order{Do: wall.DoClock, Process: p, Key: "c", Args: wall.Shift{Gain: 1, File: file}}, nil); err == nil {
		t.Error("a drift by a file was accepted")
	}
}

// TestRestoresAfterADeadAgent: only patches of dead agents are undone.
func TestRestoresAfterADeadAgent(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	shiftBy(t, c, p, "a", wall.Shift{Jump: time.Duration(time.Hour)})
	name := "pid " + strconv.Itoa(p.PID) + " "
	restore := func() string {
		t.Helper()
		var got []string
		order := agent.Order{Do: wall.DoRestore, With: []proc.Process{p}, Args: wall.RestoreArgs{Files: []string{""}}}
		if err := (agent.Mechanisms{Mechanism(ptrace.Holder{})}).Ask(t.Context(), order, &got); err != nil {
			t.Fatal(err)
		}
		return strings.Join(got, "; ")
	}
	if got := restore(); strings.Contains(got, name) {
		t.Errorf("restored under a living agent: %s", got)
	}
	child.wantAhead("still shifted", time.Hour)
	// The same patch in the name of an agent that has ended.
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	own, err := ownVDSO()
	if err != nil {
		t.Fatal(err)
	}
	by := proc.ThisProgram()
	by.PID = uint32(dead.Process.Pid)
	err = ptrace.Holder{}.Hold(t.Context(), p.PID, func(h *ptrace.Held) error {
		v, err := readVDSO(h.PID)
		if err != nil {
			return err
		}
		header, err := own.header(v.image)
		if err != nil {
			return err
		}
		header.By = by
		return v.access(h.PID, os.O_RDWR, func(m *os.File) error {
			_, err := m.WriteAt(own.patch(header)[own.stub:], int64(v.base)+int64(own.stub))
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := restore(); !strings.Contains(got, name+"(vDSO)") {
		t.Errorf("restored: %q", got)
	}
	child.wantAhead("restored", 0)
	wantPristine(t, p.PID)
	unshift(t, c, "a")
}
