//go:build integration

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/cluster/owner"
	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/internal/wait"
)

// marking is a Redis run in which one command creates a file and another removes it.
func marking(t *testing.T, file string) string {
	t.Helper()
	return scenarioFile(t, tryout.Scenario(tryout.Options{
		Name: "marked", Backend: "redis", For: 60e9, Entries: []tryout.Entry{{
			Fault: "exec", On: "redis-1", At: 500e6, Keys: fmt.Sprintf("run: touch %[1]s, proves: test -e %[1]s, undo: rm %[1]s", file),
		}},
	}))
}

// TestAloneCommandsAreUndoneWithoutTheirSupervisor kills the supervisor while the effect of a user's command stands.
// The agent undoes it in the target's own file system, and clean removes the rest.
func TestAloneCommandsAreUndoneWithoutTheirSupervisor(t *testing.T) {
	for _, provider := range []string{"docker", "local"} {
		t.Run(provider, func(t *testing.T) {
			mark := filepath.Join("/var/tmp", filepath.Base(t.TempDir())+"-"+provider+fmt.Sprint(os.Getpid()))
			p := begin(t, "run", marking(t, mark), "--provider", provider)
			p.says(t, ": installed")
			there := func() bool { _, err := os.Stat(mark); return err == nil }
			if provider == "docker" {
				if there() {
					t.Error("it ran outside of the container")
				}
				box := containerOf(t, p, "redis-1")
				there = func() bool { return exec.Command("docker", "exec", box, "test", "-e", mark).Run() == nil }
			}
			if !there() {
				t.Fatal("the command did not run: this shows nothing")
			}
			if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p.wait(t)
			wait.Until(t, time.Minute, "the agent undoes it", func() bool { return !there() })
			cleaned(t)
			gone(t, p)
		})
	}
}

// containerOf returns the container of a node of a run.
func containerOf(t *testing.T, p *process, node string) string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "-q", "--filter", "label="+owner.Label+"node="+node, "--filter", fmt.Sprintf("label=%ssupervisor-pid=%d", owner.Label, p.cmd.Process.Pid)).Output()
	id := strings.TrimSpace(string(out))
	if err != nil || id == "" {
		t.Fatalf("no container of %s: %v", node, err)
	}
	return id
}
