package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

func readClocks(t *testing.T, c *Client, p Process) ClocksRead {
	t.Helper()
	var out ClocksRead
	if err := c.Order(t.Context(), Order{Do: DoReadClocks, Process: p}, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// wantRead looks that a process reads its wall clock ahead by want, and the monotonic clock of this machine.
func wantRead(t *testing.T, c *Client, p Process, what string, want time.Duration) {
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

// TestReadsItsOwnClocks has busy and idle programs read their clocks, often, and looks that they go on undisturbed.
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
	shiftBy(t, c, p, "a", ClockArgs{Jump: int64(time.Hour)})
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

// TestReadsTheClocksOfSleepers leaves system calls alone that a process waits in, and refuses one that is stopped.
func TestReadsTheClocksOfSleepers(t *testing.T) {
	borrowing(t)
	begin := time.Now()
	cmd := exec.Command("sleep", "1.5")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	c, p := clockAgent(t, cmd.Process.Pid)
	until(t, p, "asleep", func(s State) bool { return s.Threads["S"] == 1 })
	for range 20 {
		wantRead(t, c, p, "asleep", 0)
	}
	if err := c.Signal(t.Context(), p, "STOP"); err != nil {
		t.Fatal(err)
	}
	until(t, p, "stopped", func(s State) bool { return s.Threads["T"] == 1 })
	if err := c.Order(t.Context(), Order{Do: DoReadClocks, Process: p}, nil); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("a stopped process was asked: %v", err)
	}
	until(t, p, "stopped still", func(s State) bool { return s.Threads["T"] == 1 })
	if err := c.Signal(t.Context(), p, "CONT"); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("it ended with %v", err)
	}
	if slept := time.Since(begin); slept < 1500*time.Millisecond {
		t.Errorf("it slept %v of 1.5 s", slept)
	}
}

// TestPatchOutlivesExec patches a shell that becomes another program.
func TestPatchOutlivesExec(t *testing.T) {
	borrowing(t)
	cmd := exec.Command("sh", "-c", "read line; exec sleep 30")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c, p := clockAgent(t, cmd.Process.Pid)
	shiftBy(t, c, p, "a", ClockArgs{Jump: int64(time.Hour)})
	wantRead(t, c, p, "the shell", time.Hour)
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/comm")
		if err == nil && string(comm) == "sleep\n" && readClocks(t, c, p).Wall > hostTime()+int64(30*time.Minute) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("what the shell became (%s) has the machine's clock", comm)
		}
	}
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
	out := shiftBy(t, c, p, "a", ClockArgs{Gain: 0.5, Since: since})
	if want := int64(30 * time.Minute); out.Since != since || out.Offset < want || out.Offset > want+int64(time.Minute) {
		t.Errorf("the agent says %+v", out)
	}
}

// TestFileTellsTheClock looks at what is written for libfaketime, and that it is taken back.
func TestFileTellsTheClock(t *testing.T) {
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
	out := shiftBy(t, c, p, "a", ClockArgs{Jump: int64(90 * time.Second), File: file})
	want("+90.000000000\n")
	if !strings.Contains(out.How, "not loaded") {
		t.Errorf("the agent says %+v of a process without libfaketime", out)
	}
	shiftBy(t, c, p, "b", ClockArgs{Jump: int64(-90*time.Second - 250*time.Millisecond), File: file})
	want("-0.250000000\n")
	unshift(t, c, "a")
	want("-90.250000000\n")
	unshift(t, c, "b")
	want("+0.000000000\n")
	child.wantAhead("a Go program", 0)
	if err := c.Order(t.Context(), Order{Do: DoClock, Process: p, Key: "c", Args: ClockArgs{Gain: 1, File: file}}, nil); err == nil {
		t.Error("a drift by a file was accepted")
	}
}

// TestRestoresWhatADeadAgentLeft takes only patches back whose agent is gone.
func TestRestoresWhatADeadAgentLeft(t *testing.T) {
	child := goTeller(t)
	c, p := clockAgent(t, child.cmd.Process.Pid)
	shiftBy(t, c, p, "a", ClockArgs{Jump: int64(time.Hour)})
	name := "pid " + strconv.Itoa(p.PID) + " "
	restore := func() string {
		t.Helper()
		got, err := RestoreClocks(t.Context())
		if err != nil {
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
	by := thisMover()
	by.PID = uint32(dead.Process.Pid)
	err = halting(t.Context(), p.PID, func(h *halted) error {
		v, err := readVDSO(h.pid)
		if err != nil {
			return err
		}
		header, err := own.header(v.image)
		if err != nil {
			return err
		}
		header.By = by
		return v.access(h.pid, os.O_RDWR, func(m *os.File) error {
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
