//go:build integration

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/lockquake/lockquake/results"
)

// partitioned is a scenario whose leader is cut off from everybody for all of its time.
const partitioned = `name: partitioned
claim: The leader is alone.
backend: {use: etcd, lock: mutex, nodes: 3, ttl: 2s}
workload: {use: counter, clients: 2, hold: 20ms, resource: {use: register, guard: none}}
chaos:
  - {use: partition, on: leader, at: 500ms}
run: {for: 20s, seed: 1}
expect: {judged: ">=1"}
`

// slowed is a scenario whose clients hear the servers late.
const slowed = `name: slowed
claim: Everything takes longer.
backend: {use: etcd, lock: mutex, nodes: 3, ttl: 2s}
workload: {use: counter, clients: 2, hold: 5ms, resource: {use: register, guard: none}}
chaos:
  - {use: delay, on: clients, to: all, by: 20ms, at: 500ms}
run: {for: 2s, seed: 1}
expect: {judged: ">=1"}
`

// entangled is a scenario whose first two faults are healed while others stand on their links, from the other end.
const entangled = `name: entangled
claim: Faults of one link are healed one by one.
backend: {use: redis, lock: set-px-lua, ttl: 20s}
workload: {use: counter, clients: 2, hold: 5ms, timeout: 15s, resource: {use: register, guard: none}}
chaos:
  - {use: loss, on: redis-1, to: clients, share: 30%, at: 0s, for: 3s}
  - {use: delay, on: client-2, to: redis-1, by: 20ms, at: 1s, for: 3s}
  - {use: partition, on: client-1, from: redis-1, at: 2s, for: 6s}
  - {use: delay, on: redis-1, to: clients, by: 100ms, at: 2500ms, for: 5s}
run: {for: 10s, seed: 1}
expect: {judged: ">=1"}
`

func scenarioFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "scenario.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// deafPrograms returns what makes a lockquake whose agent is sabotaged: it says that it carries some orders out, and does not.
func deafPrograms(t *testing.T) func(sabotage) string {
	t.Helper()
	dir, real := t.TempDir(), program(t)
	node := filepath.Join(dir, "node")
	if out, err := exec.Command("go", "build", "-o", node, "../../internal/cluster/testdata/node").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	made := 0
	return func(s sabotage) string {
		if s.deaf == "" {
			return real
		}
		made++
		script := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = agent ]; then TESTNODE_DEAF='%s' TESTNODE_DEAF_ANSWER='%s' exec %s agent; fi\nexec %s \"$@\"\n",
			s.deaf, s.answer, node, real)
		path := filepath.Join(dir, fmt.Sprintf("lockquake-%d", made))
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// deafProgram is lockquake with an agent that says it carries out some orders, named with commas between, and does not.
func deafProgram(t *testing.T, orders string) string {
	t.Helper()
	return deafPrograms(t)(sabotage{deaf: orders})
}

// withAndWithout runs a scenario twice: with a real agent, on the provider that is named, it must pass; with one that is deaf to the orders,
// among processes of this machine, it must end unknown. What came of each is shown to look.
func withAndWithout(t *testing.T, text, orders, provider string, look func(deaf bool, r results.Report)) {
	t.Helper()
	real := program(t)
	for _, deaf := range []bool{false, true} {
		want, verdict := codeMet, results.Pass
		if deaf {
			t.Setenv("LOCKQUAKE_BIN", deafProgram(t, orders)) // for the nodes; the run itself is the real program's
			want, verdict, provider = codeInconclusive, results.Unknown, "local"
		}
		p := beginProgram(t, real, "run", scenarioFile(t, text), "--provider", provider, "--format", "json")
		if code := p.wait(t); code != want {
			t.Errorf("deaf %t: exit code %d\n%s", deaf, code, p.stderr.String())
		}
		r := p.report(t)
		if r.Verdict != verdict {
			t.Errorf("deaf %t: verdict %s (%v), faults %+v", deaf, r.Verdict, r.Reasons, r.Faults)
		}
		look(deaf, r)
		gone(t, p)
	}
}

// TestFilterThatDoesNothing sabotages the packet filter: the fault did not bite, and nothing that it should have shown is
// believed.
func TestFilterThatDoesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces of the local provider need root")
	}
	real := program(t)
	t.Setenv("LOCKQUAKE_BIN", deafProgram(t, "filter,filtered")) // for the nodes; the run itself is the real program's
	for _, name := range []string{"etcd-lease-expiry", "late-packet-etcd", scenarioFile(t, slowed)} {
		p := beginProgram(t, real, "run", name, "--provider", "local", "--format", "json")
		if code := p.wait(t); code != codeInconclusive {
			t.Errorf("%s: exit code %d\n%s", name, code, p.stderr.String())
		}
		r := p.report(t)
		if r.Verdict != results.Unknown || len(r.Faults) != 1 || r.Faults[0].Receipt.Status != "not-installed" {
			t.Errorf("%s: verdict %s, faults %+v", name, r.Verdict, r.Faults)
		}
		gone(t, p)
	}
}

// TestFaultsOfOneLinkAreHealedOneByOne demands that each heal says that it was done, whatever the others still do, and the last look at the
// links a whole one.
func TestFaultsOfOneLinkAreHealedOneByOne(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces of the local provider need root")
	}
	p := begin(t, "run", scenarioFile(t, entangled), "--provider", "local", "--format", "json")
	if code := p.wait(t); code != codeMet {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	r := p.report(t)
	excused := 0
	for _, f := range r.Faults {
		t.Logf("%s on %s: %+v, healed: %+v", f.Name, f.Target, f.Receipt, f.Healed)
		if f.Healed == nil || f.Healed.Status != "installed" {
			t.Errorf("%s on %s: healed with %+v", f.Name, f.Target, f.Healed)
		} else if strings.Contains(f.Healed.Evidence, "stood there too") {
			excused++
		}
	}
	if len(r.Faults) != 4 || excused == 0 {
		t.Errorf("%d faults, of which %d were healed while another was seen on their links", len(r.Faults), excused)
	}
	gone(t, p)
}

// namespaceOf holds the network namespace of a process open for the time of the test, so that it can be looked into when the
// process is gone.
func namespaceOf(t *testing.T, pid string) *os.File {
	t.Helper()
	f, err := os.Open("/proc/" + pid + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// ourTables lists the packet filter tables of lockquake in a network namespace.
func ourTables(t *testing.T, f *os.File) []string {
	t.Helper()
	c, err := nftables.New(nftables.WithNetNSFd(int(f.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, table := range tables {
		if strings.HasPrefix(table.Name, "lockquake_") {
			out = append(out, table.Name)
		}
	}
	return out
}

// containerPIDs lists the processes of a supervisor's containers, but its agent's.
func containerPIDs(t *testing.T, supervisor int) []string {
	t.Helper()
	ids, err := exec.Command("docker", "ps", "-q", "--filter", "label=org.lockquake.supervisor-pid="+strconv.Itoa(supervisor)).Output()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"inspect", "-f", `{{.State.Pid}} {{index .Config.Labels "org.lockquake.node"}}`}, strings.Fields(string(ids))...)
	said, err := exec.Command("docker", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(said)) {
		if pid, node, _ := strings.Cut(strings.TrimSpace(line), " "); node != "agent" {
			out = append(out, pid)
		}
	}
	return out
}

// TestSupervisorKilledWhileLinksAreHit kills the supervisor while links are cut, slow, or hold packets back: its agent takes the
// rules down.
func TestSupervisorKilledWhileLinksAreHit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("looking into the namespaces of containers needs root")
	}
	for name, with := range map[string]string{
		"partition": "{use: partition, on: leader, at: 500ms}",
		"delay":     "{use: delay, on: leader, by: 20ms, engine: queue, at: 500ms}",
		"hold-back": "{use: hold-back, on: leader, to: rest, at: 500ms}",
	} {
		t.Run(name, func(t *testing.T) {
			killedWhileLinksAreHit(t, strings.Replace(partitioned, "{use: partition, on: leader, at: 500ms}", with, 1))
		})
	}
}

func killedWhileLinksAreHit(t *testing.T, scenario string) {
	t.Helper()
	p := begin(t, "run", scenarioFile(t, scenario), "--provider", "docker")
	awaitPause(t, p)
	pids := containerPIDs(t, p.cmd.Process.Pid)
	tables := 0
	var spaces []*os.File
	for _, pid := range pids {
		f := namespaceOf(t, pid)
		spaces = append(spaces, f)
		tables += len(ourTables(t, f))
	}
	at := len(pids) // at the leader, and at everybody's end of the links to it
	if strings.Contains(scenario, "hold-back") {
		at-- // its receivers only
	}
	if tables != at || tables == 0 {
		t.Errorf("%d tables in %d namespaces while the fault stands, want %d", tables, len(pids), at)
	}
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	var left []string
	for range 40 {
		left = nil
		for _, f := range spaces {
			left = append(left, ourTables(t, f)...)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("2 s after the death of the supervisor there are %v", left)
	}
	clean(t)
	gone(t, p)
}
