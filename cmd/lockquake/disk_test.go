//go:build integration

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/results"
)

// slowDisk is a scenario whose server waits for its disk, and is paused and killed meanwhile.
const slowDisk = `name: slow-disk
claim: Each fsync takes half a second.
backend: {use: redis, lock: set-px-lua, persistence: everysec, ttl: 2s}
workload: {use: counter, clients: 2, hold: 20ms, resource: {use: register, guard: none}}
chaos:
  - {use: slow-disk, by: 500ms, on: redis-1, at: 200ms, for: 3s}
  - {use: pause, on: redis-1, at: 1s, for: 300ms}
run: {for: 5s, seed: 1}
expect: {judged: ">=1"}
`

// TestSlowDisk holds the syncs of a real server back, by a real agent, and by one that only says so.
func TestSlowDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("processes of the local provider are traced by root only")
	}
	withAndWithout(t, slowDisk, "syncs,synced", "docker", func(deaf bool, r results.Report) {
		if len(r.Faults) < 2 {
			t.Errorf("deaf %t: faults %+v", deaf, r.Faults)
		}
		for _, f := range r.Faults {
			t.Logf("%s: %s, %s", f.Name, f.Receipt.Status, f.Receipt.Evidence)
			if f.Healed == nil || f.Healed.Status != "installed" {
				t.Errorf("%s: healed %+v", f.Name, f.Healed)
			}
			if bit := f.Receipt.Status == "installed"; f.Name == "slow-disk" && bit == deaf || f.Name == "pause" && !bit {
				t.Errorf("%s: %+v", f.Name, f.Receipt)
			}
		}
	})
}

// traced counts the threads of a process that somebody traces.
func traced(t *testing.T, pid string) int {
	t.Helper()
	out, err := exec.Command("sh", "-c", "cat /proc/"+pid+"/task/*/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if who, ok := strings.CutPrefix(line, "TracerPid:"); ok && strings.TrimSpace(who) != "0" {
			n++
		}
	}
	return n
}

// TestSupervisorKilledWithASlowDisk kills the supervisor while syncs are held: its agent lets them go.
func TestSupervisorKilledWithASlowDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("looking at the threads of containers needs root")
	}
	p := begin(t, "run", scenarioFile(t, slowDisk), "--provider", "docker", "--set", "chaos.0.for=60s", "--set", "chaos.1.at=50s", "--set", "run.for=60s")
	awaitPause(t, p)
	out, err := exec.Command("docker", "ps", "-q", "--filter", "label=org.lockquake.supervisor-pid="+strconv.Itoa(p.cmd.Process.Pid),
		"--filter", "label=org.lockquake.node=redis-1").Output()
	if err != nil {
		t.Fatal(err)
	}
	box := strings.TrimSpace(string(out))
	if out, err = exec.Command("docker", "inspect", "-f", "{{.State.Pid}}", box).Output(); err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(out))
	if n := traced(t, pid); n != 1 { // the one that syncs
		t.Errorf("%d threads are traced while the disk is slow", n)
	}
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	for end := time.Now().Add(4 * time.Second); traced(t, pid) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("its threads are still traced")
		}
	}
	clean(t)
	gone(t, p)
}
