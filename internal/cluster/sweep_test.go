package cluster

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/wait"
)

// standing is an order that a supervisor left behind.
type standing struct {
	kind    string
	process proc.Process
	stands  func() bool
}

// abandon starts a supervisor of the named provider, waits until every kind of order is active, calls look, and kills
// the supervisor. If withAgent is set, it kills the agent first. It returns what was active.
func abandon(t *testing.T, provider, run, binary string, withAgent bool, look func()) []standing {
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
	defer time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }).Stop()
	var orders []standing
	var name string
	guard := 0
	for lines := bufio.NewScanner(out); name != "all" && lines.Scan(); {
		var pid int
		if _, err := fmt.Sscan(lines.Text(), &name, &pid); err != nil {
			t.Fatalf("the supervisor says %q", lines.Text())
		}
		if name == "agent" {
			guard = pid
			continue
		}
		for _, k := range orderKinds() {
			if k.name == name {
				orders = append(orders, stood(t, k, pid))
			}
		}
	}
	if name != "all" || len(orders) < 2 {
		t.Fatalf("the supervisor gave %d orders, the last %q", len(orders), name)
	}
	look()
	if withAgent && guard > 1 {
		if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return orders
}

// stood checks that an order is active on a process.
func stood(t *testing.T, k orderKind, pid int) standing {
	t.Helper()
	p, err := proc.Find(pid)
	if err != nil {
		t.Fatalf("%s: find process %d: %v", k.name, pid, err)
	}
	stands, err := k.watch(p)
	if err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	if !stands() {
		t.Errorf("%s: nothing stands on process %d: this test shows nothing", k.name, pid)
	}
	return standing{k.name, p, stands}
}

// undone waits until an order is no longer active.
func undone(t *testing.T, s standing) {
	t.Helper()
	t.Run(s.kind, func(t *testing.T) {
		begun := time.Now()
		wait.Until(t, patience, "it stands no more", func() bool { return !s.stands() })
		t.Logf("undone %v after it was looked for", time.Since(begun).Round(time.Millisecond))
	})
}

// patience ends a test that hangs.
const patience = time.Minute

// gone waits until a process has ended or lies unreaped.
func gone(t *testing.T, p proc.Process) {
	t.Helper()
	if !wait.Within(patience, func() bool { s, err := p.Inspect(); return err == nil && s.Gone() }) {
		t.Errorf("process %d lives %v after its supervisor was killed", p.PID, patience)
	}
}

// frozenGroups lists the groups of the kernel's freezer that agents made.
func frozenGroups(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, _ error) error { // others' groups come and go meanwhile
		if d != nil && d.IsDir() && strings.HasPrefix(d.Name(), "lockquake-frozen-") {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// awaitThaw waits until the agent that lost its supervisor has removed its groups.
func awaitThaw(t *testing.T, groups []string) {
	t.Helper()
	if !wait.Within(patience, func() bool {
		groups = slices.DeleteFunc(groups, func(g string) bool { _, err := os.Stat(g); return err != nil })
		return len(groups) == 0
	}) {
		t.Errorf("the freezer still has %v %v after the supervisor was killed", groups, patience)
	}
}

// orphans kills the supervisor of a local provider, whose nodes the kernel then ends, and checks what is left of every
// kind of order. Sweep undoes what a dead agent cannot.
func orphans(t *testing.T, provider, run string, withAgent bool) {
	t.Helper()
	if err := proc.Supported(); err != nil {
		t.Skip(err)
	}
	tmp := t.TempDir()
	if err := os.Chmod(filepath.Dir(tmp), 0o755); err != nil { // servers are another user
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp) // otherwise a run of another package's tests may sweep what this test must find
	dir := state.Of(run)
	earlier := frozenGroups(t)
	var groups []string
	orders := abandon(t, provider, run, testBinary(t), withAgent, func() {
		var s Swept
		if err := s.local(t.Context(), SweepOptions{All: true, Mechanisms: all.All()}); err != nil {
			t.Error(err)
		}
		if strings.Contains(strings.Join(append(s.Processes, s.Directories...), " "), run) {
			t.Errorf("the things of a running supervisor were swept: %+v", s)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
		groups = slices.DeleteFunc(frozenGroups(t), func(g string) bool { return slices.Contains(earlier, g) })
		t.Logf("frozen in %v", groups)
	})
	ended := func() {
		for _, s := range orders {
			undone(t, s)
			gone(t, s.process)
		}
		awaitThaw(t, groups)
	}
	if !withAgent {
		ended() // without any sweep: the kernel kills them, stopped as they are
	}
	for _, s := range orders {
		if withAgent && s.kind == "freeze" && !s.stands() {
			t.Error("a process thawed without its agent: this test shows nothing of the sweep")
		}
	}
	var swept Swept // not by Sweep, which would also judge the engine's things of other runs
	if err := swept.local(t.Context(), SweepOptions{Mechanisms: all.All()}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(strings.Join(swept.Directories, " "), dir) {
		t.Errorf("swept %v: %+v", swept, swept)
	}
	if withAgent {
		ended()
	}
	left, err := SweepOptions{Mechanisms: all.All()}.restore(t.Context(), agent.Order{Do: process.DoRestore})
	left = slices.DeleteFunc(left, func(group string) bool { // of another package's tests
		return !slices.ContainsFunc(orders, func(s standing) bool { return strings.HasSuffix(group, fmt.Sprintf("-%d", s.process.PID)) })
	})
	if err != nil || len(left) > 0 {
		t.Errorf("behind the sweep there was still %v, %v", left, err)
	}
	nothingLeft(t, run)
}

func TestKilledSupervisorOnLoopback(t *testing.T) { orphans(t, "loopback", "tkillloop", false) }
