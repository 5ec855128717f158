//go:build integration

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/results"
)

// leftovers lists what runs make on this machine: containers and networks with our label, processes that are lockquake's
// or a server's, network namespaces and links.
func leftovers(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, kind := range [][]string{{"ps", "-a", "-q"}, {"network", "ls", "-q"}, {"volume", "ls", "-q"}} {
		b, err := exec.Command("docker", append(kind, "--filter", "label=org.lockquake.run")...).Output()
		if err != nil {
			t.Fatalf("docker %v: %v; these tests need an engine", kind, err)
		}
		for _, id := range strings.Fields(string(b)) {
			out = append(out, "docker "+kind[0]+" "+id)
		}
	}
	for _, p := range processes(t) {
		out = append(out, "process "+strconv.Itoa(p.pid)+" "+p.command)
	}
	spaces, err := filepath.Glob("/run/netns/*")
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, spaces...)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		out = append(out, "link "+l.Name)
	}
	return out
}

// newSince returns what is there now and was not before.
func newSince(before, now []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(before, s) })
}

// seen is a process of interest.
type seen struct {
	pid     int
	command string
	state   string
}

// processes lists the nodes of runs among this machine's processes: clients, registers, agents, built-in and other servers.
func processes(t *testing.T) []seen {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []seen
	for _, d := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil {
			continue // it ended meanwhile
		}
		args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		name := filepath.Base(strings.Fields(args[0] + " ?")[0])
		ours := strings.HasPrefix(name, "lockquake") && len(args) > 1 && slices.Contains([]string{"client", "register", "agent", "node"}, args[1])
		if !ours && name != "redis-server" && name != "etcd" {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		rest := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
		pid, _ := strconv.Atoi(filepath.Base(d))
		if rest[0] != "Z" { // an orphan that is dead waits for init only
			out = append(out, seen{pid: pid, command: strings.Join(args, " "), state: rest[0]})
		}
	}
	return out
}

// awaitStopped waits until a client is stopped: the middle of a pause.
func awaitStopped(t *testing.T, p *process) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for time.Now().Before(deadline) {
		for _, s := range processes(t) {
			if s.state == "T" && strings.HasSuffix(s.command, " client") {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("no client was stopped within 90 s\n%s", p.stderr.String())
}

// gone demands that nothing is left within a few seconds: processes that were killed need a moment to be reaped.
func gone(t *testing.T, before []string) {
	t.Helper()
	var left []string
	for range 50 {
		if left = newSince(before, leftovers(t)); len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("left behind: %v", left)
}

// TestInterruptInAFault presses Ctrl-C while a client is stopped, twice.
func TestInterruptInAFault(t *testing.T) {
	for _, provider := range []string{"docker", "local"} {
		t.Run(provider, func(t *testing.T) {
			before := leftovers(t)
			p := begin(t, "run", "etcd-holder-pause", "--provider", provider, "--format", "json")
			awaitStopped(t, p)
			for range 2 {
				if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			if code := p.wait(t); code != codeInterrupted {
				t.Errorf("exit code %d, should be %d\n%s", code, codeInterrupted, p.stderr.String())
			}
			if !strings.Contains(p.stderr.String(), "still healing") {
				t.Errorf("the second Ctrl-C was not answered:\n%s", p.stderr.String())
			}
			r := p.report(t)
			if _, err := os.Stat(filepath.Join(r.RunDir, results.FileReport)); err != nil {
				t.Error(err)
			}
			env, err := results.ReadEnv(r.RunDir)
			if err != nil || !env.Interrupted {
				t.Errorf("env.json does not say that the run was interrupted: %v", err)
			}
			if r.Verdict == results.Pass {
				t.Error("an interrupted run must not pass")
			}
			gone(t, before)
		})
	}
}

// TestSupervisorKilled kills the supervisor in the middle of a fault: nobody heals, and what is left must be removed by
// clean, or by the next run.
func TestSupervisorKilled(t *testing.T) {
	for _, c := range []struct {
		name, provider string
		sweep          []string
	}{
		{"docker-clean", "docker", []string{"clean"}},
		{"local-clean", "local", []string{"clean"}},
		{"local-next-run", "local", []string{"run", "memory-healthy", "--set", "run.for=500ms"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := leftovers(t)
			p := begin(t, "run", "etcd-holder-pause", "--provider", c.provider)
			awaitStopped(t, p)
			if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != -1 {
				t.Fatalf("it ended by itself with %d", code)
			}
			if len(newSince(before, leftovers(t))) == 0 {
				t.Fatal("nothing was left: this test shows nothing")
			}
			if sweeper := begin(t, c.sweep...); sweeper.wait(t) != codeMet {
				t.Errorf("%v: %s%s", c.sweep, sweeper.stdout.String(), sweeper.stderr.String())
			}
			gone(t, before)
		})
	}
}
