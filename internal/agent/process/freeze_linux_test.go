package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/clock"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

func init() { agenttest.BeChild(Mechanism()) }

// canFreeze skips where no process can be frozen.
func canFreeze(t *testing.T) {
	t.Helper()
	if err := supported(); err != nil {
		t.Skip(err)
	}
}

// freezable starts a shell with a busy child.
func freezable(t *testing.T, c *agent.Client) (parent, child proc.Process) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "(while :; do :; done) & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p, err := proc.Find(pid); err == nil {
			_ = p.Signal("KILL")
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if parent, err = c.Own(t.Context(), cmd.Process.Pid, false); err != nil {
		t.Fatal(err)
	}
	if child, err = c.Own(t.Context(), pid, false); err != nil {
		t.Fatal(err)
	}
	return parent, child
}

func freezeIt(t *testing.T, c *agent.Client, p proc.Process) {
	t.Helper()
	if err := c.Order(t.Context(), agent.Order{Do: process.DoFreeze, Process: p, Key: "frozen"}, nil); err != nil {
		t.Fatal(err)
	}
}

func frozenNow(t *testing.T, c *agent.Client, p proc.Process) process.Frozen {
	t.Helper()
	var out process.Frozen
	if err := c.Order(t.Context(), agent.Order{Do: process.DoFrozen, Process: p}, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// works waits until a process or its descendant gets CPU time.
func works(t *testing.T, c *agent.Client, p proc.Process) {
	t.Helper()
	before := frozenNow(t, c, p)
	wait.Until(t, agenttest.Patience, "it works", func() bool { return frozenNow(t, c, p).Ran > before.Ran })
}

// worked returns the CPU time of a process and its descendants within 50 ms, or a little more on a busy machine.
func worked(t *testing.T, c *agent.Client, p proc.Process) time.Duration {
	t.Helper()
	before := frozenNow(t, c, p)
	time.Sleep(50 * time.Millisecond)
	return time.Duration(frozenNow(t, c, p).Ran - before.Ran)
}

// groupsLeft lists the control groups that agents made and that are still there.
func groupsLeft(t *testing.T) []string {
	t.Helper()
	var out []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), strings.TrimSuffix(groupName(frozenPrefix, proc.ThisProgram(), 0), "-0")) {
			out = append(out, path)
		}
		return nil // a group may go while we look
	})
	return out
}

func TestFreezeHaltsDescendantsAndThaws(t *testing.T) {
	canFreeze(t)
	c, _ := agenttest.Serve(t, Mechanism())
	p, child := freezable(t, c)
	works(t, c, p) // else this test would show nothing
	home, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", child.PID))
	if err != nil {
		t.Fatal(err)
	}
	freezeIt(t, c, p)
	if f := frozenNow(t, c, p); !f.Frozen || f.Outside != 0 || f.Unseen != "" || f.Time == 0 {
		t.Errorf("frozen: %+v", f)
	}
	if w := worked(t, c, p); w != 0 {
		t.Errorf("frozen, they worked for %v", w)
	}
	if f := frozenNow(t, c, child); !f.Frozen {
		t.Errorf("the child: %+v", f)
	}
	var healed process.Frozen
	if err := c.Undo(t.Context(), "frozen", &healed); err != nil || healed.Frozen {
		t.Errorf("thawed: %+v, %v", healed, err)
	}
	works(t, c, p)
	if back, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", child.PID)); err != nil || string(back) != string(home) {
		t.Errorf("it was in\n%s and is in\n%s %v", home, back, err)
	}
	if left := groupsLeft(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// everyVersion freezes a process by each of the two hierarchies that is mounted here, and thaws it after do.
func everyVersion(t *testing.T, p proc.Process, do func(t *testing.T)) {
	t.Helper()
	all, err := freezersOf(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range all {
		t.Run(fmt.Sprint("version ", base.version), func(t *testing.T) {
			if base.readOnly {
				t.Skip("it is mounted read-only")
			}
			f := &freezing{process: p, from: &base}
			if f.by, err = base.below(groupName(frozenPrefix, proc.ThisProgram(), p.PID)); err != nil {
				t.Skip(err)
			}
			freezings.Store(p, f)
			if err := gather(f.process.PID, f.by.folder); err != nil {
				t.Fatal(err)
			}
			if err := f.by.set(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			do(t)
			if _, err := f.undo(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if left := groupsLeft(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestFreezerOfEachVersion(t *testing.T) {
	canFreeze(t)
	c, _ := agenttest.Serve(t, Mechanism())
	p, _ := freezable(t, c)
	everyVersion(t, p, func(t *testing.T) {
		if seen := frozenNow(t, c, p); !seen.Frozen || seen.Outside != 0 || worked(t, c, p) != 0 {
			t.Errorf("%+v", seen)
		}
	})
	if seen := frozenNow(t, c, p); seen.Frozen {
		t.Errorf("thawed: %+v", seen)
	}
	works(t, c, p)
}

func TestFreezeIsHealedWhenTheStreamEnds(t *testing.T) {
	canFreeze(t)
	c, ended := agenttest.Serve(t, Mechanism())
	p, _ := freezable(t, c)
	freezeIt(t, c, p)
	agenttest.Ended(t, c, ended)
	if f, err := AskFrozen(p); err != nil || f.Frozen || f.Gone {
		t.Errorf("%+v, %v", f, err)
	}
	if left := groupsLeft(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAStopWaitsForTheThaw(t *testing.T) {
	canFreeze(t)
	c, _ := agenttest.Serve(t, Mechanism())
	p, _ := freezable(t, c)
	freezeIt(t, c, p)
	if err := c.Signal(t.Context(), p, "STOP"); err != nil {
		t.Fatal(err)
	}
	if f := frozenNow(t, c, p); !f.Frozen || !f.Stop {
		t.Errorf("frozen and stopped: %+v", f)
	}
	if err := c.Undo(t.Context(), "frozen", nil); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "stopped", agenttest.Stopped)
	freezeIt(t, c, p)
	if err := c.Signal(t.Context(), p, "CONT"); err != nil {
		t.Fatal(err)
	}
	if f := frozenNow(t, c, p); !f.Frozen || f.Stop {
		t.Errorf("frozen and continued: %+v", f)
	}
	if err := c.Undo(t.Context(), "frozen", nil); err != nil {
		t.Fatal(err)
	}
	agenttest.Until(t, p, "running", agenttest.Running)
}

// TestAFrozenProcessCanBeKilled kills a process before its thaw: it must not run in between.
func TestAFrozenProcessCanBeKilled(t *testing.T) {
	canFreeze(t)
	c, _ := agenttest.Serve(t, Mechanism())
	p, child := freezable(t, c)
	freezeIt(t, c, p)
	for _, one := range []proc.Process{p, child} {
		if err := c.Signal(t.Context(), one, "KILL"); err != nil {
			t.Fatal(err)
		}
	}
	var healed process.Frozen
	if err := c.Undo(t.Context(), "frozen", &healed); err != nil || healed.Frozen {
		t.Errorf("%+v, %v", healed, err)
	}
	agenttest.Until(t, p, "dead", func(s node.State) bool { return s.PID == 0 || s.Threads["Z"] > 0 })
	if left := groupsLeft(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestAClockIsMovedInTheIce moves the clock of a program frozen by either version, and back; neither lets it run.
func TestAClockIsMovedInTheIce(t *testing.T) {
	canFreeze(t)
	if err := (agent.Mechanisms{clock.Mechanism(ptrace.Holder{Thaw: Thaw})}).Supports(wall.DoClock); err != nil || os.Geteuid() != 0 {
		t.Skip("no clock can be moved here: ", err)
	}
	c, _ := agenttest.Serve(t, Mechanism(), clock.Mechanism(ptrace.Holder{Thaw: Thaw}))
	cmd, in, out := agenttest.Child(t, filepath.Join(t.TempDir(), "file")) // a program with several threads
	p, err := c.Own(t.Context(), cmd.Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(out)
	ask := func() { _, _ = io.WriteString(in, "\n"); _, _ = answers.ReadString('\n') }
	ask()
	everyVersion(t, p, func(t *testing.T) {
		var moved wall.Clocked
		args := wall.Shift{Jump: time.Duration(time.Hour)}
		if err := c.Order(t.Context(), agent.Order{Do: wall.DoClock, Process: p, Key: "clock", Args: args}, &moved); err != nil {
			t.Fatal(err)
		}
		if f := frozenNow(t, c, p); !f.Frozen {
			t.Errorf("after the clock was moved: %+v", f)
		}
		// A released thread runs some µs within the kernel before it is frozen again. A wait for a CPU does not count.
		if w := worked(t, c, p); w > time.Millisecond {
			t.Errorf("it ran for %v", w)
		}
		if err := c.Undo(t.Context(), "clock", nil); err != nil {
			t.Error(err)
		}
		if f := frozenNow(t, c, p); !f.Frozen {
			t.Errorf("after the clock was put back: %+v", f)
		}
	})
	ask()
}

// TestFreezeOfADeadAgentIsFound kills an agent, so that it heals nothing.
func TestFreezeOfADeadAgentIsFound(t *testing.T) {
	canFreeze(t)
	cmd, in, out := agenttest.Child(t, "agent")
	c, err := agent.Connect(t.Context(), in, out)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := freezable(t, c)
	freezeIt(t, c, p)
	mine := func(restored []string) bool {
		return slices.ContainsFunc(restored, func(s string) bool { return strings.HasSuffix(s, fmt.Sprintf("-%d", p.PID)) })
	}
	var restored []string
	thaw := func() error {
		return agent.Mechanisms{Mechanism()}.Ask(context.Background(), agent.Order{Do: process.DoRestore}, &restored)
	}
	if err := thaw(); err != nil || mine(restored) {
		t.Errorf("a living agent's: %v, %v", restored, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if f, err := AskFrozen(p); err != nil || !f.Frozen {
		t.Fatalf("it is not frozen any more: %+v, %v; this test shows nothing", f, err)
	}
	if err := thaw(); err != nil || !mine(restored) {
		t.Errorf("a dead agent's: %v, %v", restored, err)
	}
	if f, err := AskFrozen(p); err != nil || f.Frozen || f.Gone {
		t.Errorf("%+v, %v", f, err)
	}
}
