package shell

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/shell"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/wait"
)

// order sends an order for a process.
func order(t *testing.T, c *agent.Client, p proc.Process, do string, args shell.ExecArgs) shell.Ran {
	t.Helper()
	if args.Within == 0 {
		args.Within = agenttest.Patience
	}
	var ran shell.Ran
	if err := c.Order(t.Context(), agent.Order{Do: do, Process: p, Key: "exec", Args: args}, &ran); err != nil {
		t.Fatal(err)
	}
	return ran
}

// sleeping starts a process that belongs to the agent.
func sleeping(t *testing.T, c *agent.Client) (proc.Process, *exec.Cmd) {
	t.Helper()
	cmd := agenttest.Sleeper(t)
	p, err := c.Own(t.Context(), cmd.Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	return p, cmd
}

func there(path string) bool { _, err := os.Stat(path); return err == nil }

func TestCommandsRunAndAreUndone(t *testing.T) {
	c, _ := agenttest.Serve(t, Mechanism())
	p, _ := sleeping(t, c)
	dir := t.TempDir()
	args := shell.ExecArgs{Run: "echo $WHO; touch x", Undo: "rm x", Dir: dir, Env: []string{"WHO=me"}}
	if ran := order(t, c, p, shell.DoExec, args); !ran.OK() || ran.Output != "me\n" || ran.Time == 0 || !there(dir+"/x") {
		t.Errorf("%+v", ran)
	}
	if ran := order(t, c, p, shell.DoProve, shell.ExecArgs{Run: "test -e x || exit 3", Dir: t.TempDir()}); ran.OK() || ran.Code != 3 {
		t.Errorf("a proof that fails: %+v", ran)
	}
	var ran shell.Ran
	if err := c.Undo(t.Context(), "exec", &ran); err != nil || !ran.OK() || there(dir+"/x") {
		t.Errorf("%+v, %v", ran, err)
	}
}

// TestUndoOutlivesTheSupervisor ends the control stream: the agent runs its undos, whether the process lives or not.
func TestUndoOutlivesTheSupervisor(t *testing.T) {
	for _, lives := range []bool{true, false} {
		c, ended := agenttest.Serve(t, Mechanism())
		p, cmd := sleeping(t, c)
		mark := filepath.Join(t.TempDir(), "x")
		order(t, c, p, shell.DoExec, shell.ExecArgs{Run: "touch " + mark, Undo: "rm " + mark})
		if !there(mark) {
			t.Fatal("nothing was done")
		}
		if !lives {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		agenttest.Ended(t, c, ended)
		if there(mark) {
			t.Errorf("the process lives %t: it is not undone", lives)
		}
	}
}

func TestCommandsAreBounded(t *testing.T) {
	c, _ := agenttest.Serve(t, Mechanism())
	p, _ := sleeping(t, c)
	pids := filepath.Join(t.TempDir(), "pids")
	long := shell.ExecArgs{Run: "sleep 600 & echo $! >" + pids + "; echo begun; wait", Within: time.Second}
	if ran := order(t, c, p, shell.DoProve, long); ran.OK() || !strings.HasPrefix(ran.Ended, "killed after") || ran.Output != "begun\n" {
		t.Errorf("without end: %+v", ran)
	}
	b, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	wait.Until(t, agenttest.Patience, "its child is killed, too", func() bool {
		found, err := proc.Find(pid)
		return errors.Is(err, proc.ErrNoProcess) || err == nil && !found.Running()
	})
	if ran := order(t, c, p, shell.DoProve, shell.ExecArgs{Run: "yes | head -c 100000"}); !ran.OK() || len(ran.Output) != headSize || ran.More != 100000-headSize {
		t.Errorf("much output: %d bytes and %d more, %s", len(ran.Output), ran.More, ran.Ended)
	}
	if ran := order(t, c, p, shell.DoProve, shell.ExecArgs{Run: "kill -9 $$"}); ran.OK() || ran.Ended == "" {
		t.Errorf("killed: %+v", ran)
	}
}

// TestCommandsRunInTheNamespacesOfTheProcess: commands run there, and may not leave.
func TestCommandsRunInTheNamespacesOfTheProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	dir := t.TempDir()
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c",
		"mount -t tmpfs none "+dir+" && echo $$ > "+dir+"/inside && echo up && exec sleep 600")
	_, out := agenttest.Start(t, cmd)
	if b := make([]byte, 3); func() bool { _, err := out.Read(b); return err != nil }() {
		t.Skip("no namespaces here")
	}
	c, _ := agenttest.Serve(t, Mechanism())
	family, err := proc.Descendants(cmd.Process.Pid)
	if err != nil || len(family) < 2 {
		t.Fatal(family, err)
	}
	p, err := c.Own(t.Context(), family[1], true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Signal("KILL") })
	ran := order(t, c, p, shell.DoProve, shell.ExecArgs{Run: "cat " + dir + "/inside; grep -c eth /proc/net/dev; unshare --mount true 2>/dev/null || echo held"})
	if want := "1\n0\nheld\n"; ran.Output != want {
		t.Errorf("it said %q, want %q: %s", ran.Output, want, ran)
	}
	if there(dir + "/inside") {
		t.Error("the file is in this test's file system: this shows nothing")
	}
	if ran := order(t, c, p, shell.DoExec, shell.ExecArgs{Run: "touch " + dir + "/x", Undo: "rm " + dir + "/x"}); !ran.OK() {
		t.Error(ran)
	}
	_ = p.Signal("KILL")
	_ = cmd.Wait()
	if err := c.Undo(t.Context(), "exec", &ran); err != nil || !ran.Gone {
		t.Errorf("its files are gone with it: %+v, %v", ran, err)
	}
}
