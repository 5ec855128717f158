//go:build integration

package main

import (
	"cmp"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	provided "github.com/lockquake/lockquake/backends/conformance/servers"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/results"
)

// testProvider returns the provider for tests of faults.
func testProvider() string { return cmp.Or(os.Getenv(provided.ProviderEnv), "docker") }

// moved is a scenario that moves the clocks of one server and one client, and checks the effect on the service.
func moved(backend, server string) string {
	return `name: moved
claim: The clocks of one server and of a client go ahead by a minute, and come back.
backend: {use: ` + backend + `, ttl: 30s}
steps:
  - {do: acquire, user: A}
  - {inject: clock-jump, on: ` + server + `, by: +60s, as: server}
  - {inject: clock-jump, on: A, by: +60s, as: client}
  - {do: acquire, user: B, outcome: any, within: 500ms}
  - {heal: client}
  - {heal: server}
  - {do: release, user: A, outcome: any}
expect: {judged: ">=1", double_grants: "` + map[bool]string{true: ">0", false: "0"}[backend == "redis"] + `"}
`
}

// TestClocksJump moves the clock of a Redis server, of one of ZooKeeper's servers and of an etcd member, each together
// with that of a client. Redis forgets the holder's key; the others use their monotonic clocks.
func TestClocksJump(t *testing.T) {
	t.Parallel()
	for backend, server := range map[string]string{"redis": "redis-1", "etcd": "etcd-2", "zookeeper": "zookeeper-2"} {
		t.Run(backend, func(t *testing.T) {
			leftToAll(t, "TestEveryFault moves the clocks of etcd and Redis, and redlock-clock-jump shows what comes of it")
			t.Parallel()
			p := begin(t, "run", scenarioFile(t, moved(backend, server)), "--provider", testProvider(), "--format", "json")
			code := p.wait(t)
			r := p.report(t)
			if wantPassed(t, code, []results.Report{r}); len(r.Faults) != 2 {
				t.Fatalf("faults %+v\n%s", r.Faults, p.stderr.String())
			}
			for _, f := range r.Faults {
				wantReceipts(t, f, history.Installed)
				if !strings.Contains(f.Receipt.Evidence, "its monotonic clock is unchanged") {
					t.Errorf("%s: nothing is known of its monotonic clock: %s", f.Target, f.Receipt.Evidence)
				}
			}
			gone(t, p)
		})
	}
}

// wantReceipts checks the receipt of a fault, and that the fault was healed.
func wantReceipts(t *testing.T, f results.FaultResult, want history.ReceiptStatus) {
	t.Helper()
	if f.Receipt.Status != want {
		t.Errorf("%s on %s: %s: %s", f.Name, f.Target, f.Receipt.Status, f.Receipt.Evidence)
	}
	if f.Healed == nil || f.Healed.Status != history.Installed {
		t.Errorf("%s on %s: not healed: %+v", f.Name, f.Target, f.Healed)
	}
}

// overlapping is the start of scenarios with clock faults on one node. It has a restart between them, and heals in
// another order. Each receipt accounts for the other faults.
const overlapping = `name: overlapping
claim: The clock faults of one node add up, outlast its process, and heal one by one.
backend: {use: redis, ttl: 30s}
expect: {judged: ">=1"}
steps:
  - {do: acquire, user: A}
`

// patched and told are such scenarios, one for each mechanism.
const (
	patched = overlapping + `  - {inject: clock-jump, on: redis-1, by: +60s, as: first}
  - {inject: clock-jump, on: redis-1, by: +1h, as: second}
  - {inject: restart, on: redis-1}
  - {inject: clock-drift, on: redis-1, rate: 1.5, as: drift}
  - {heal: first}
  - {inject: clock-jump, on: redis-1, by: -10s, as: back}
  - {heal: drift}
  - {heal: second}
  - {heal: back}
  - {do: release, user: A, outcome: any}
`
	told = overlapping + `  - {inject: clock-jump, on: redis-1, by: +1h, how: faketime, as: second}
  - {inject: restart, on: redis-1}
  - {inject: clock-jump, on: redis-1, by: -10s, how: faketime, as: back}
  - {heal: second}
  - {heal: back}
  - {do: release, user: A, outcome: any}
`
)

// TestClockFaultsOverlap runs both scenarios, and checks that the restarted process has the clock of the previous one.
func TestClockFaultsOverlap(t *testing.T) {
	t.Parallel()
	for how, text := range map[string]string{"vdso": patched, "faketime": told} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := begin(t, "run", scenarioFile(t, text), "--provider", testProvider(), "--format", "json")
			code := p.wait(t)
			r := p.report(t)
			if code != cli.CodeMet || len(r.Faults) != strings.Count(text, "inject") {
				t.Fatalf("exit code %d, faults %+v\n%s", code, r.Faults, p.stderr.String())
			}
			for _, f := range r.Faults {
				wantReceipts(t, f, history.Installed)
			}
			// Reading a clock is accurate to some ms, so the hour may be 59m59.999s.
			back := r.Faults[len(r.Faults)-1].Receipt.Evidence
			_, before, _ := strings.Cut(back, "previously ")
			before, _, _ = strings.Cut(before, "±")
			if ahead, err := time.ParseDuration(before); err != nil || (ahead-time.Hour).Abs() > time.Second {
				t.Errorf("after a restart and one heal it was ahead by %v, %v: %s", ahead, err, back)
			}
			gone(t, p)
		})
	}
}

// strobed is a scenario in which the clocks of two servers go ahead by an hour and come back, repeatedly.
const strobed = `name: strobed
claim: Clocks that strobe are seen to go there and back each time.
backend: {use: etcd, nodes: 3, ttl: 3s}
workload: {use: counter, clients: 2, hold: 5ms, resource: {use: register, guard: none}}
chaos:
  - {use: clock-jump, on: [etcd-1, etcd-2], by: +1h, at: 500ms, for: 700ms, every: 5s}
run: {for: 14s, seed: 1}
expect: {judged: ">=1"}
`

// TestClocksStrobe checks the receipts of both servers.
func TestClocksStrobe(t *testing.T) {
	leftToAll(t, "TestClockFaultsOverlap moves clocks again and again")
	t.Parallel()
	p := begin(t, "run", scenarioFile(t, strobed), "--provider", testProvider(), "--format", "json")
	code := p.wait(t)
	r := p.report(t)
	if code != cli.CodeMet || len(r.Faults) < 3 {
		t.Fatalf("exit code %d, faults %+v\n%s", code, r.Faults, p.stderr.String())
	}
	for _, f := range r.Faults {
		wantReceipts(t, f, history.Installed)
		for _, node := range []string{"etcd-1: ", "etcd-2: "} {
			if !strings.Contains(f.Receipt.Evidence, node) || f.Healed != nil && !strings.Contains(f.Healed.Evidence, node) {
				t.Errorf("%s of both servers: %s; %+v", f.Name, f.Receipt.Evidence, f.Healed)
			}
		}
	}
	gone(t, p)
}

// TestFaketimeThatDoesNothing: a server discards the library it should load. The run does not trust a clock that it
// did not see move. TestSabotage does the same to the agent's way of moving clocks.
func TestFaketimeThatDoesNothing(t *testing.T) {
	t.Parallel()
	redis, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("%v: run `.ci/setup redis`", err)
	}
	bare := t.TempDir()
	script := "#!/bin/sh\nunset LD_PRELOAD\nexec " + redis + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bare, "redis-server"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := beginProgram(t, "env", "PATH="+bare+":"+os.Getenv("PATH"), program(t), "run", "redis-clock-jump-faketime", "--provider", "local", "--format", "json")
	if code := p.wait(t); code != cli.CodeInconclusive {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	r := p.report(t)
	if r.Verdict != results.Unknown || len(r.Faults) != 1 || r.Faults[0].Receipt.Status != history.NotInstalled {
		t.Errorf("verdict %s, faults %+v", r.Verdict, r.Faults)
	}
	gone(t, p)
}

// TestFaketimeIsRefused: libfaketime in Go programs, and both mechanisms on one node, are refused before anything
// starts.
func TestFaketimeIsRefused(t *testing.T) {
	t.Parallel()
	text := strings.Replace(moved("etcd", "etcd-2"), "by: +60s, as: server", "by: +60s, how: faketime, as: server", 1)
	p := begin(t, "run", scenarioFile(t, text), "--provider", testProvider())
	if code := p.wait(t); code != cli.CodeMissing || !strings.Contains(p.stderr.String(), "etcd-2: preload is unavailable: it is a Go program") {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	p = begin(t, "run", scenarioFile(t, told+"  - {inject: clock-drift, on: all, rate: 1.5}\n"), "--provider", testProvider())
	if code := p.wait(t); code != cli.CodeMissing || !strings.Contains(p.stderr.String(), "use the same how for all clock faults of a node") {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
}

// ahead is a scenario in which a member's clock stays ahead.
const ahead = `name: ahead
claim: The clock of one member is an hour ahead.
backend: {use: etcd, lock: mutex, nodes: 3, ttl: 2s}
workload: {use: acquire-release, clients: 1, hold: 20ms}
chaos:
  - {use: clock-jump, on: etcd-1, by: +1h, at: 200ms}
run: {for: 60s, seed: 1}
expect: {judged: ">=1"}
`

// inContainer inspects one container of a supervisor.
func inContainer(t *testing.T, p *process, node, format string) string {
	t.Helper()
	label := "label=org.lockquake.supervisor-pid=" + strconv.Itoa(p.cmd.Process.Pid)
	id, err := exec.Command("docker", "ps", "-q", "--filter", label, "--filter", "label=org.lockquake.node="+node).Output()
	if err != nil || len(id) == 0 {
		t.Fatalf("container of %s: %q, %v", node, id, err)
	}
	out, err := exec.Command("docker", "inspect", "-f", format, strings.TrimSpace(string(id))).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// aheadBy asks an etcd member for its clock, and returns how far it is ahead.
func aheadBy(t *testing.T, host string) time.Duration {
	t.Helper()
	answer, err := http.Get("http://" + host + ":2379/version")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(at)
}

const address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"

// wantRight waits until a clock agrees with the machine's.
func wantRight(t *testing.T, host, when string) {
	t.Helper()
	wait.Until(t, 20*time.Second, when+" its clock is right", func() bool { return aheadBy(t, host).Abs() <= 2*time.Second })
}

// TestAloneAgentKilledWhileAClockIsAhead kills the agent, so that it cannot undo anything. clean undoes it, for a
// server that still runs in a run that goes on.
func TestAloneAgentKilledWhileAClockIsAhead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("killing an agent and looking into processes needs root")
	}
	p := begin(t, "run", scenarioFile(t, ahead), "--provider", "docker", "--format", "json")
	awaitPause(t, p)
	host := inContainer(t, p, "etcd-1", address)
	if out := clean(t); strings.Contains(out, "clock") {
		t.Errorf("clean touched the clock of a run that has its agent: %s", out)
	}
	agent, err := strconv.Atoi(inContainer(t, p, "agent", "{{.State.Pid}}"))
	if err != nil || agent < 2 {
		t.Fatalf("pid of the agent: %d, %v", agent, err)
	}
	if err := syscall.Kill(agent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // nothing is left that could heal
	if by := aheadBy(t, host); by < 59*time.Minute {
		t.Errorf("without an agent it is ahead by %v", by)
	}
	if out := clean(t); !strings.Contains(out, "clock of pid") {
		t.Errorf("clean says %s", out)
	}
	wantRight(t, host, "after clean")
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	gone(t, p)
}
