//go:build integration

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/results"
)

// leftovers lists what the runs of one supervisor have on this machine: containers and networks by label, processes by
// environment, links by alias, state directories by owner file. Those of other supervisors do not count.
func leftovers(t *testing.T, supervisor int) []string {
	t.Helper()
	var out []string
	for _, kind := range [][]string{{"ps", "-a"}, {"network", "ls"}, {"volume", "ls"}} {
		filter := fmt.Sprintf("label=org.lockquake.supervisor-pid=%d", supervisor)
		args := slices.Concat(kind, []string{"-q", "--filter", filter})
		b, err := exec.Command("docker", args...).Output()
		if err != nil {
			t.Fatalf("docker %v: %v; these tests need an engine", args, err)
		}
		for _, id := range strings.Fields(string(b)) {
			out = append(out, "docker "+kind[0]+" "+id)
		}
	}
	mark := fmt.Appendf(nil, ",pid=%d,", supervisor)
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/sys/class/net/*/ifalias", filepath.Join(os.TempDir(), "lockquake-*", "*", "owner")} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil || !bytes.Contains(b, mark) {
				continue // it has gone, or belongs to another supervisor
			}
			name := filepath.Dir(f)
			if command, err := os.ReadFile(filepath.Join(name, "cmdline")); err == nil {
				name += " " + strings.ReplaceAll(string(command), "\x00", " ")
			}
			out = append(out, name)
		}
	}
	return out
}

// clean runs `lockquake clean`, which must succeed, and returns its output. Networks that the engine miscounts are
// logged and not counted.
func clean(t *testing.T) string {
	t.Helper()
	p := begin(t, "clean")
	code := p.wait(t)
	for line := range strings.Lines(p.stderr.String()) {
		if id := refused.FindStringSubmatch(line); id != nil && miscounted(t, id[1]) {
			code = cli.CodeMet
		} else if !strings.HasPrefix(line, "left: ") {
			t.Errorf("clean: %s", line)
		}
	}
	if code != cli.CodeMet {
		t.Errorf("clean: exit code %d", code)
	}
	return p.stdout.String() + p.stderr.String()
}

func cleaned(t *testing.T) {
	t.Helper()
	clean(t)
}

// refused matches the message about a network that the engine does not remove.
var refused = regexp.MustCompile(`remove network ([0-9a-f]{12}): .* ` + cluster.ActiveEndpoints)

// miscounted reports whether the engine refuses to remove a network because of endpoints that do not exist. If
// containers of one network end at the same moment, Docker 20.10 can lose count (moby/moby#42119), and only a restart
// of Docker removes such a network. The network must have no members, by its own list and by that of all containers.
func miscounted(t *testing.T, network string) bool {
	t.Helper()
	within, err := exec.Command("docker", "network", "inspect", "--format", "{{len .Containers}}", network).Output()
	if err != nil {
		return false // gone already, or there is no engine
	}
	boxes, err := exec.Command("docker", "ps", "-aq", "--filter", "network="+network).Output()
	if err != nil || strings.TrimSpace(string(within)) != "0" || len(bytes.TrimSpace(boxes)) > 0 {
		return false
	}
	t.Logf("the engine counts endpoints in the network %s, and lists none: nobody can remove it until the engine is restarted", network)
	return true
}

// gone demands that nothing is left after a few seconds, because killed processes take a moment to be reaped. A
// network that the engine miscounts is logged and not counted.
func gone(t *testing.T, p *process) {
	t.Helper()
	var left []string
	if wait.Within(5*time.Second, func() bool { left = leftovers(t, p.cmd.Process.Pid); return len(left) == 0 }) {
		return
	}
	left = slices.DeleteFunc(left, func(what string) bool {
		id, network := strings.CutPrefix(what, "docker network ")
		if !network {
			return false
		}
		said, err := exec.Command("docker", "network", "rm", id).CombinedOutput() // of a dead supervisor; reported above if it can be removed
		return err != nil && strings.Contains(string(said), cluster.ActiveEndpoints) && miscounted(t, id)
	})
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// log is a buffer that may be read while a process writes to it.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends.
func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String returns the text so far.
func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// says waits until the program has printed a text to standard error.
func (p *process) says(t *testing.T, what string) {
	t.Helper()
	if !wait.Within(2*time.Minute, func() bool { return strings.Contains(p.stderr.String(), what) }) {
		t.Fatalf("it does not say %q within 2 min\n%s", what, p.stderr.String())
	}
}

// awaitPause waits until a client is stopped. The fault then lasts for 4 s.
func awaitPause(t *testing.T, p *process) {
	t.Helper()
	p.says(t, ": installed")
}

// TestInterruptInAFault sends Ctrl-C while a client is stopped, twice.
func TestInterruptInAFault(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"docker", "local"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			p := begin(t, "run", "etcd-holder-pause", "--provider", provider, "--format", "json")
			awaitPause(t, p)
			if len(leftovers(t, p.cmd.Process.Pid)) == 0 {
				t.Error("a run under way is not seen: this test would see nothing left behind either")
			}
			for range 2 {
				if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if code := p.wait(t); code != cli.CodeInterrupted {
				t.Errorf("exit code %d, should be %d\n%s", code, cli.CodeInterrupted, p.stderr.String())
			}
			if !strings.Contains(p.stderr.String(), "still healing") {
				t.Errorf("the second Ctrl-C was not answered:\n%s", p.stderr.String())
			}
			checkInterrupted(t, p.report(t))
			gone(t, p)
		})
	}
}

// checkInterrupted checks the files of an interrupted run.
func checkInterrupted(t *testing.T, r results.Report) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(r.RunDir, results.FileReport)); err != nil {
		t.Error(err)
	}
	env, err := results.ReadEnv(r.RunDir)
	if err != nil || !env.Interrupted || !env.Finished {
		t.Errorf("env.json does not say that the run was interrupted and brought to its end: %v", err)
	}
	if r.Verdict == results.Pass {
		t.Error("an interrupted run must not pass")
	}
	if len(r.Faults) != 1 || r.Faults[0].Healed == nil || r.Faults[0].Healed.Status != "installed" {
		t.Errorf("the fault was not seen to be healed: %+v", r.Faults)
	}
}

// TestAloneSupervisorKilled kills the supervisor in the middle of a fault. Nothing is healed, so clean or the next run
// must remove what is left. TestKilledSupervisor of internal/cluster covers every kind of order. SIGABRT ends the
// process as a panic does: the runtime prints its stacks, and deferred calls do not run.
func TestAloneSupervisorKilled(t *testing.T) {
	for _, c := range []struct {
		name, provider string
		signal         syscall.Signal
		code           int
		sweep          func(*testing.T)
	}{
		{"docker-clean", "docker", syscall.SIGKILL, -1, cleaned},
		{"local-panic-clean", "local", syscall.SIGABRT, 2, cleaned},
		{"local-next-run", "local", syscall.SIGKILL, -1, func(t *testing.T) {
			next := begin(t, "run", "memory-healthy", "--set", "run.for=500ms")
			if next.wait(t) != cli.CodeMet {
				t.Errorf("the next run: %s%s", next.stdout.String(), next.stderr.String())
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := begin(t, "run", "etcd-holder-pause", "--provider", c.provider)
			awaitPause(t, p)
			if err := p.cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != c.code {
				t.Fatalf("it ended by itself with %d", code)
			}
			if len(leftovers(t, p.cmd.Process.Pid)) == 0 {
				t.Fatal("nothing was left: this test shows nothing")
			}
			c.sweep(t)
			gone(t, p)
		})
	}
}
