//go:build integration && swarm

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/cmd/lockquake/doctor"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// These tests run on the swarm of three engines that `make test-swarm` makes on this machine.

// swarmRounds is the number of times to make each run: LOCKQUAKE_SWARM_ROUNDS, else once.
func swarmRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("LOCKQUAKE_SWARM_ROUNDS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("LOCKQUAKE_SWARM_ROUNDS is %q, no number of rounds", text)
	}
	return n
}

// onSwarm runs the program on the swarm, and returns its verdict and exit code.
func onSwarm(t *testing.T, args ...string) (results.Report, int) {
	t.Helper()
	p := begin(t, append([]string{"run", "--provider", "swarm", "--format", "json"}, args...)...)
	code := p.wait(t)
	if p.stdout.String() == "" {
		t.Fatalf("exit code %d\n%s", code, p.stderr.String())
	}
	r := p.report(t)
	if code != cli.CodeMet {
		t.Logf("exit code %d, %s\n%s", code, r.Verdict, p.stderr.String())
	}
	for _, w := range r.Warnings {
		if all := noneMeasured.FindStringSubmatch(w); code == cli.CodeMet && all != nil && all[1] == all[2] {
			t.Error(w)
		}
	}
	return r, code
}

// TestSwarmStories runs with clocks apart all the time. The third host's monotonic clock is 500,000 s ahead of the
// others. The wall clock of every process on the second host is 3 s ahead. The hosts get the nodes in turn, so that
// their names are known.
func TestSwarmStories(t *testing.T) {
	for _, tt := range []struct{ name, twin, on, then string }{
		// A Sentinel whose clock jumped does not act for 30 s.
		{"sentinel-lost-lock", "", "redis-2, sentinel-2, client-1", "  - {await: elapsed, for: 32s, within: 60s}\n"},
		{"redlock-clock-jump", "", "redlock-2, redlock-5, client-2", ""},
		{"etcd-holder-pause", "", "etcd-2, client-2, client-5, client-8", ""},
		{"late-packet-etcd", ":fenced", "etcd-2, client-1", ""},
		{"etcd-leader-failover", "", "etcd-2, client-2, client-5, client-8", ""},
	} {
		t.Run(tt.name+tt.twin, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "scenarios", "stories", tt.name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if tt.twin == "" { // twins refer to steps by number
				text, _, _ = bytes.Cut(text, []byte("twins:\n"))
			}
			jump := "clock-jump, on: [" + tt.on + "], by: +3s"
			text = stepsOf.ReplaceAll(text, []byte("${1}steps:\n${1}  - {inject: "+jump+", as: ahead}\n"+tt.then))
			text = chaosOf.ReplaceAll(text, []byte("$0  - {use: "+jump+", at: 0s}\n"))
			file := scenarioFile(t, string(text))
			for round := range swarmRounds(t) {
				r, code := onSwarm(t, file+tt.twin)
				if code != cli.CodeMet {
					t.Errorf("round %d: exit code %d, verdict %s", round+1, code, r.Verdict)
				}
				for node, host := range placesOf(t, r) {
					if (host == nameOfHost(t, 2)) != slices.Contains(strings.Split(tt.on, ", "), node) {
						t.Errorf("%s is on %v, and those of the second host are taken to be %s", node, host, tt.on)
					}
				}
			}
			nothingOnTheSwarm(t)
		})
	}
}

// noneMeasured matches the warning about omitted clock measurements, with their number and the total.
var noneMeasured = regexp.MustCompile(`^(\d+) of (\d+) measurements of the clock`)

// The beginning of a scenario's steps, with their indentation, and its schedule.
var (
	stepsOf = regexp.MustCompile(`(?m)^( *)steps:\n`)
	chaosOf = regexp.MustCompile(`(?m)^chaos:\n(  - .*\n)+`)
)

// placesOf returns the host of each node of a run, by node.
func placesOf(t *testing.T, r results.Report) map[string]string {
	t.Helper()
	env, err := results.ReadEnv(r.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, host := range env.Cluster {
		if node, is := strings.CutPrefix(name, history.HostOf); is && node != history.Engine {
			out[node] = host
		}
	}
	return out
}

// onSecond has a fault of each kind act on a node of the second host.
const onSecond = `name: on-second
claim: Each fault acts on the host that its target is on.
backend: {use: etcd, lock: mutex, nodes: 3, ttl: 10s}
workload: {use: counter, clients: 3, users: 2, hold: 1ms, resource: {use: register, guard: none}}
chaos:
  - {use: pause, on: etcd-2, at: 1s, for: 1s}
  - {use: partition, on: etcd-2, at: 4s, for: 1s}
  - {use: delay, on: etcd-2, by: 50ms, at: 7s, for: 2s}
  - {use: loss, on: etcd-2, share: 30%, at: 11s, for: 2s}
  - {use: clock-jump, on: etcd-2, by: +1h, at: 15s, for: 1s}
  - {use: kill, on: etcd-2, at: 18s, for: 1s}
  - {use: restart, on: etcd-2, at: 22s}
run: {for: 28s, seed: 42}
expect: {judged: ">=10"}
`

// TestSwarmFaults: packet delay, loss and partitions, kills and restarts, and leader step-downs act on the hosts of
// their targets. TestSwarmStories covers pauses and clocks.
func TestSwarmFaults(t *testing.T) {
	hit := map[string]bool{} // hosts
	for _, name := range []string{
		onSecond, "etcd-slow-network", "redis-restart-amnesia", "etcd-leader-failover-polite", "zookeeper-session-expiry", "postgres-session-end",
	} {
		first, _, many := strings.Cut(name, "\n")
		t.Run(strings.TrimPrefix(first, "name: "), func(t *testing.T) {
			if many {
				name = scenarioFile(t, name)
			}
			r, code := onSwarm(t, name)
			if code != cli.CodeMet {
				t.Errorf("exit code %d, verdict %s: %q", code, r.Verdict, r.Reasons)
			}
			faults, err := results.ReadFaults(r.RunDir)
			if err != nil {
				t.Fatal(err)
			}
			on := placesOf(t, r)
			for _, f := range faults {
				if f.Receipt.Status != history.Installed {
					t.Errorf("%s on %s is %s: %s", f.Name, f.Target, f.Receipt.Status, f.Receipt.Evidence)
				}
				for _, target := range f.Targets {
					t.Logf("%s on %s, which is on %s", f.Name, target, on[target])
					hit[on[target]] = true
					if on[target] == "" || many && on[target] != nameOfHost(t, 2) {
						t.Errorf("%s on %s: not on the host that it is to be on, %q", f.Name, target, on[target])
					}
				}
			}
			nothingOnTheSwarm(t)
		})
	}
	if len(hit) != 3 { // a fault on all clients has targets on each host
		t.Errorf("hosts that had targets: %v", hit)
	}
}

// TestSwarmJudges: a lock on a real server that grants to everyone is found with its two clients on two hosts. A safe
// lock is clean.
func TestSwarmJudges(t *testing.T) {
	few := []string{"redis-healthy", "--set", "run.for=5s", "--set", "workload.clients=2", "--set", "hosts.rule=servers-apart-from-clients"}
	for round := range swarmRounds(t) {
		r, code := onSwarm(t, append(few, "--set", neverLock(t))...)
		if code != cli.CodeFailed || r.Counts["double_grants"] == nil || *r.Counts["double_grants"] == 0 {
			t.Errorf("round %d: a lock that grants to everybody: exit code %d, double grants %v", round+1, code, r.Counts["double_grants"])
		} else {
			t.Logf("a lock that grants to everybody: %d double grants among %d grants", *r.Counts["double_grants"], r.Judged.Grants)
		}
		if asked := r.Measures["requests_per_grant"]; asked == nil || *asked < 1 {
			t.Errorf("round %d: it is a lock of the server, which had %v requests a grant", round+1, asked)
		}
		onTwoHosts(t, r)
		r, code = onSwarm(t, few...)
		if code != cli.CodeMet {
			t.Errorf("round %d: a safe lock: exit code %d, verdict %s", round+1, code, r.Verdict)
		}
		onTwoHosts(t, r)
		if c := r.Clocks; c == nil || c.Compared != 3 || c.UnsurePairs == nil || c.UnsureOf == 0 {
			t.Errorf("round %d: the clocks of two clients and the register were to be compared: %+v", round+1, c)
		} else {
			t.Logf("%d grants. %s", r.Judged.Grants, c.Text())
		}
	}
	nothingOnTheSwarm(t)
}

// onTwoHosts checks that each of a run's two clients had a host of its own, and the server the third.
func onTwoHosts(t *testing.T, r results.Report) {
	t.Helper()
	on := placesOf(t, r)
	if on["redis-1"] != nameOfHost(t, 1) || on["client-1"] != nameOfHost(t, 2) || on["client-2"] != nameOfHost(t, 3) {
		t.Errorf("the server is to be on the first host and a client on each of the others: %v", on)
	}
	t.Logf("hosts %v", on)
}

// survey returns what doctor finds out about the hosts.
func survey(t *testing.T) []cluster.HostSeen {
	t.Helper()
	p, _, err := nodes.Choose(t.Context(), "swarm")
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := p.(cluster.Surveyor).Survey(t.Context(), doctor.Prober)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(doctor.HostsText(hosts))
	if len(hosts) != 3 {
		t.Fatalf("%d hosts, want 3", len(hosts))
	}
	return hosts
}

// TestSwarmHosts checks doctor's output about the hosts. One of the three engines has a clock of its own, 500,000 s
// ahead.
func TestSwarmHosts(t *testing.T) {
	for i, h := range survey(t) {
		if h.Lacks != "" || h.Clock == nil {
			t.Fatalf("%s lacks something: %s", h.Name, h.Lacks)
		}
		if len(h.Links) != 2 || h.Links[0].Arrived == 0 || h.Links[1].RoundTrip.Mid <= 0 || h.Links[0].ClockError <= 0 {
			t.Errorf("the links of %s: %+v", h.Name, h.Links)
		}
		if ahead := -h.Clock.Offset.Round(time.Second); (i == 2) != (ahead == 500_000*time.Second) {
			t.Errorf("the clock of %s is ahead by %v", h.Name, ahead)
		}
		for _, c := range []string{"pause", "freeze", "kill", "filter", "clock", "limits"} {
			if why, cannot := h.Cannot[c]; cannot {
				t.Errorf("%s cannot %s: %s", h.Name, c, why)
			}
		}
	}
	nothingOnTheSwarm(t)
}

// TestSwarmUnfitHosts: a drained host, and one whose relay does not start, do not keep doctor and clean from the other
// hosts; both name them. A run is refused, or avoids them.
func TestSwarmUnfitHosts(t *testing.T) {
	at, relayImage := hostsOfSwarm(t), cluster.ContainerImage(node.SelfProgram)
	drained, without := nameOfHost(t, 2), nameOfHost(t, 3)
	docker(t, at[0], "node", "update", "--availability", "drain", drained)
	docker(t, at[2], "image", "tag", relayImage, "lockquake-put-away")
	docker(t, at[2], "image", "rm", relayImage)
	t.Cleanup(func() {
		docker(t, at[0], "node", "update", "--availability", "active", drained)
		docker(t, at[2], "image", "tag", "lockquake-put-away", relayImage)
		docker(t, at[2], "image", "rm", "lockquake-put-away")
	})
	hosts := survey(t)
	for i, want := range []string{"", "it does not take part: ready, drain", "No such image"} {
		if h := hosts[i]; !strings.Contains(h.Lacks, want) || (h.Lacks == "") != (want == "") || (h.Engine == "") != (want != "") {
			t.Errorf("of %s: %+v, want %q", h.Name, h, want)
		}
	}
	p := begin(t, "clean", "--provider", "swarm", "--format", "json")
	if code := p.wait(t); code != cli.CodeMissing {
		t.Errorf("clean: exit code %d\n%s", code, p.stderr.String())
	}
	var swept cluster.Swept
	if err := json.Unmarshal([]byte(p.stdout.String()), &swept); err != nil || len(swept.Unseen) != 2 ||
		!strings.HasPrefix(swept.Unseen[0], drained+" (") || !strings.HasPrefix(swept.Unseen[1], without+" (") {
		t.Errorf("clean did not look at %q: %v", swept.Unseen, err)
	}
	q := begin(t, "run", "redis-healthy", "--provider", "swarm")
	if code := q.wait(t); code != cli.CodeMissing || !strings.Contains(q.stderr.String(), "the relay of host "+without) {
		t.Errorf("a run: exit code %d\n%s", code, q.stderr.String())
	}
	nothingOnTheSwarm(t)
}

// TestSwarmUnfitManager: on a drained or paused manager, containers cannot join the run's network. The run reports
// that at once, and names the host.
func TestSwarmUnfitManager(t *testing.T) {
	manager, name := hostsOfSwarm(t)[0], nameOfHost(t, 1)
	t.Cleanup(func() { docker(t, manager, "node", "update", "--availability", "active", name) })
	for _, availability := range []string{"drain", "pause"} {
		docker(t, manager, "node", "update", "--availability", availability, name)
		for _, args := range [][]string{{"run", "redis-healthy"}, {"capacity", "--backend", "redis"}, {"doctor"}, {"clean"}} {
			p := begin(t, append(args, "--provider", "swarm")...)
			if code := p.wait(t); code != cli.CodeMissing || !strings.Contains(p.stderr.String(), fmt.Sprintf("host %s with availability %q", name, availability)) {
				t.Errorf("%s, %v: exit code %d\n%s", availability, args, code, p.stderr.String())
			}
		}
	}
	nothingOnTheSwarm(t)
}

// TestSwarmRefuses: the error names the host and what it lacks, and nothing is left behind.
func TestSwarmRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--image", "relay=lockquake-none:1"}, cli.CodeMissing, "the relay of host " + strings.TrimSuffix(nameOfHost(t, 1), "1")},
		{[]string{"--set", "hosts.servers=disk=tape"}, cli.CodeMissing, "a host for redis-1"},
	} {
		p := begin(t, append([]string{"run", "redis-healthy", "--provider", "swarm"}, tt.args...)...)
		if code := p.wait(t); code != tt.code || !strings.Contains(p.stderr.String(), tt.want) {
			t.Errorf("%q: exit code %d, want %d and %q\n%s", tt.args, code, tt.code, tt.want, p.stderr.String())
		}
	}
	nothingOnTheSwarm(t)
}

func TestSwarmCapacity(t *testing.T) {
	p := begin(t, "capacity", "--provider", "swarm", "--backend", "redis", "--users", "1,4", "--locks", "own", "--for", "1s", "--repeat", "1", "--format", "json")
	if code := p.wait(t); code != cli.CodeMet {
		t.Fatalf("exit code %d\n%s", code, p.stderr.String())
	}
	var s capacity.Sweep
	if err := json.Unmarshal([]byte(p.stdout.String()), &s); err != nil || s.Provider != "swarm" || len(s.Points) != 2 {
		t.Fatalf("no result of a swarm (%v):\n%s", err, p.stdout.String())
	}
	for _, point := range s.Points {
		for _, one := range point.Samples {
			if one.Spoilt != "" || one.Cycles <= 0 {
				t.Errorf("%+v: %+v", point.Setting, one)
			}
			t.Logf("%d users: %.0f cycles a second", point.Setting.Users, one.Cycles)
		}
	}
	nothingOnTheSwarm(t)
}

// TestSwarmSuite: a suite keeps servers between stories on several hosts, too.
func TestSwarmSuite(t *testing.T) {
	p := begin(t, "suite", "redis", "--provider", "swarm", "--quick", "--story", "contention", "--story", "late-release", "--story", "holder-pauses")
	if code := p.wait(t); code != cli.CodeMet || !strings.Contains(p.stdout.String(), "3 green") {
		t.Errorf("exit code %d\n%s\n%s", code, p.stdout.String(), p.stderr.String())
	}
	nothingOnTheSwarm(t)
}

// TestSwarmAfterKillNine kills the supervisor, and has clean remove what it left on all hosts.
func TestSwarmAfterKillNine(t *testing.T) {
	p := begin(t, "run", "etcd-healthy", "--provider", "swarm", "--set", "run.for=60s")
	wait.Until(t, time.Minute, "the run's containers", func() bool { return len(onHosts(t)) >= 8 })
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	c := begin(t, "clean", "--provider", "swarm")
	if code := c.wait(t); code != cli.CodeMet {
		t.Errorf("clean: exit code %d\n%s", code, c.stderr.String())
	}
	for _, what := range []string{"container", "container " + nameOfHost(t, 2) + "/", "service", "network"} {
		if !strings.Contains(c.stdout.String(), what) {
			t.Errorf("clean names no %s:\n%s", what, c.stdout.String())
		}
	}
	nothingOnTheSwarm(t)
}

// docker runs a command of an engine, and returns its output.
func docker(t *testing.T, host string, args ...string) string {
	t.Helper()
	b, err := exec.Command("docker", append([]string{"-H", host}, args...)...).Output()
	if err != nil {
		t.Fatalf("docker -H %s %v: %v", host, args, err)
	}
	return string(b)
}

// hostsOfSwarm returns the addresses of the three engines for docker, the manager first.
func hostsOfSwarm(t *testing.T) []string {
	t.Helper()
	manager := os.Getenv("DOCKER_HOST")
	before, after, ours := strings.Cut(manager, "/1/")
	if !ours {
		t.Fatalf("DOCKER_HOST is %q, and not the first engine of `make swarm-up`", manager)
	}
	return []string{manager, before + "/2/" + after, before + "/3/" + after}
}

// nameOfSwarm is the name of the engines' network, and the prefix of their names.
func nameOfSwarm(t *testing.T) string {
	t.Helper()
	return filepath.Base(strings.TrimSuffix(hostsOfSwarm(t)[0], "/1/docker.sock"))
}

// nameOfHost returns the name of an engine's container, which is also its host name, by number from 1.
func nameOfHost(t *testing.T, engine int) string {
	t.Helper()
	return fmt.Sprint(nameOfSwarm(t), "-", engine)
}

// onHosts lists what runs have on the swarm.
func onHosts(t *testing.T) []string {
	t.Helper()
	var out []string
	ask := func(host string, args ...string) {
		for name := range strings.FieldsSeq(docker(t, host, args...)) {
			out = append(out, args[0]+" "+name+" at "+host)
		}
	}
	const mark = "label=org.lockquake.run"
	hosts := hostsOfSwarm(t)
	for _, host := range hosts {
		ask(host, "ps", "-a", "--filter", mark, "--format", "{{.Names}}")
	}
	ask(hosts[0], "network", "ls", "--filter", mark, "--format", "{{.Name}}")
	ask(hosts[0], "service", "ls", "--filter", mark, "--format", "{{.Name}}")
	slices.Sort(out)
	return out
}

// nothingOnTheSwarm waits for the relays. The swarm removes their containers some time after their service.
func nothingOnTheSwarm(t *testing.T) {
	t.Helper()
	var left []string
	if !wait.Within(10*time.Second, func() bool { left = onHosts(t); return len(left) == 0 }) {
		t.Errorf("left on the swarm: %s", strings.Join(left, ", "))
	}
}
