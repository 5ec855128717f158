package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/wait"
)

func limited(t *testing.T, c *agent.Client, p proc.Process) (out process.CPULimited) {
	t.Helper()
	if err := c.Order(t.Context(), agent.Order{Do: process.DoLimitedCPU, Process: p}, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// limit limits a busy process, and waits until it is throttled.
func limit(t *testing.T, c *agent.Client, p proc.Process, key string, cpus float64) {
	t.Helper()
	if err := c.Order(t.Context(), agent.Order{Do: process.DoLimitCPU, Process: p, Key: key, Args: process.CPUArgs{CPUs: cpus}}, nil); err != nil {
		t.Fatal(err)
	}
	first := limited(t, c, p)
	wait.Until(t, agenttest.Patience, "it wants more", func() bool { return limited(t, c, p).Throttled > first.Throttled })
}

// limitedGroups lists the groups of this program that are left.
func limitedGroups(t *testing.T) (out []string) {
	t.Helper()
	prefix := strings.TrimSuffix(groupName(limitedPrefix, proc.ThisProgram(), 0), "-0")
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), prefix) {
			out = append(out, path)
		}
		return nil // a group may go while we look
	})
	return out
}

func canBeLimited(t *testing.T) {
	t.Helper()
	if err := canLimit(); err != nil {
		t.Skip(err)
	}
}

func TestLimitsHoldDescendantsAndOverlap(t *testing.T) {
	canBeLimited(t)
	c, _ := agenttest.Serve(t, Mechanism())
	p, child := freezable(t, c)
	before := limited(t, c, p)
	limit(t, c, p, "one", 0.05)
	limit(t, c, p, "two", 0.02)
	for _, one := range []proc.Process{p, child} {
		if l := limited(t, c, one); l.CPUs != 0.02 || l.Outside != 0 || l.Time == 0 {
			t.Errorf("both stand: %+v", l)
		}
		// The kernel adds a wait when it is over, after it has counted the throttling.
		wait.Until(t, agenttest.Patience, "it has waited", func() bool { return limited(t, c, one).Waited > 0 })
	}
	if err := c.Undo(t.Context(), "two", nil); err != nil {
		t.Fatal(err)
	}
	if l := limited(t, c, p); l.CPUs != 0.05 || l.Limits != 1 {
		t.Errorf("one stands: %+v", l)
	}
	if err := c.Undo(t.Context(), "one", nil); err != nil {
		t.Fatal(err)
	}
	if l := limited(t, c, p); l.CPUs != before.CPUs || l.Limits != 0 || l.Outside != 0 {
		t.Errorf("none stands: %+v, and %+v before", l, before)
	}
	if left := limitedGroups(t); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestLimitsEndWithTheSupervisor: limits end with the supervisor, whether the process lives or not.
func TestLimitsEndWithTheSupervisor(t *testing.T) {
	canBeLimited(t)
	for _, lives := range []bool{true, false} {
		c, ended := agenttest.Serve(t, Mechanism())
		p, child := freezable(t, c)
		limit(t, c, p, "one", 0.05)
		if !lives {
			_, _ = child.Signal("KILL"), p.Signal("KILL")
		}
		agenttest.Ended(t, c, ended)
		if g, err := cpuGroupOf(os.Getpid()); err != nil || len(limitedGroups(t)) > 0 {
			t.Errorf("left: %v of %s, %v", limitedGroups(t), g.group, err)
		}
	}
}

// TestDeadAgentsLimitsAreRemoved: clean removes the leftovers of a killed agent.
func TestDeadAgentsLimitsAreRemoved(t *testing.T) {
	canBeLimited(t)
	own, err := cpuGroupOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dead := proc.ThisProgram()
	dead.Start++ // a program that had this one's pid
	left, err := own.made(groupName(limitedPrefix, dead, 7))
	if err != nil {
		t.Fatal(err)
	}
	var restored []string
	if err := (agent.Mechanisms{Mechanism()}).Ask(t.Context(), agent.Order{Do: process.DoRestore}, &restored); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left.folder); err == nil || !strings.Contains(strings.Join(restored, " "), left.folder) {
		t.Errorf("%s is left; removed: %v", left.folder, restored)
	}
}
