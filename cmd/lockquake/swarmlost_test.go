//go:build integration && swarm

package main

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/wait"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
)

// loss takes hosts away from a run. The run does not know their state, and says so. What runs there is removed when
// they are back.
type loss struct {
	run        []string // its arguments
	engines    []int    // of the hosts, by number from 1
	take, give func(t *testing.T, engine int)
	refused    string // what a run says meanwhile; "": not tried
}

func (l loss) happens(t *testing.T) {
	t.Helper()
	p := begin(t, append([]string{"run", "--provider", "swarm", "--format", "json", "--set", "run.for=30s"}, l.run...)...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\n%s", p.stderr.String(), p.stdout.String())
		}
	})
	wait.Until(t, 2*time.Minute, "the load", func() bool { return strings.Contains(p.stderr.String(), " grants") })
	var lost []string
	for _, engine := range l.engines {
		l.take(t, engine)
		lost = append(lost, nameOfHost(t, engine))
	}
	code := p.wait(t)
	if l.refused != "" {
		q := begin(t, "run", "redis-healthy", "--provider", "swarm")
		if code := q.wait(t); code != cli.CodeMissing || !strings.Contains(q.stderr.String(), l.refused) {
			t.Errorf("a run meanwhile: exit code %d\n%s", code, q.stderr.String())
		}
	}
	for _, engine := range l.engines {
		l.give(t, engine)
	}
	r := p.report(t)
	if code == cli.CodeMet || r.Verdict != results.Unknown {
		t.Errorf("exit code %d, verdict %s, want it unknown", code, r.Verdict)
	}
	lostWith(t, r, lost)
	cleanHosts(t)
}

// threeClients runs one client on each host.
var threeClients = []string{"redis-healthy", "--set", "workload.clients=3"}

func TestSwarmLosesHosts(t *testing.T) {
	available := func(availability string) func(t *testing.T, engine int) {
		return func(t *testing.T, engine int) {
			docker(t, hostsOfSwarm(t)[0], "node", "update", "--availability", availability, nameOfHost(t, engine))
		}
	}
	for name, l := range map[string]loss{
		"cut off": {run: threeClients, engines: []int{3}, take: cutOff, give: backAgain},
		"a server cut off": { // of three members there are two on the first host, and one on the second; the third has the clients
			run:     []string{"etcd-healthy", "--set", "workload.clients=2", "--set", "hosts.rule=servers-apart-from-clients"},
			engines: []int{2}, take: cutOff, give: backAgain,
		},
		"drained": {run: threeClients, engines: []int{2}, take: available("drain"), give: available("active")},
	} {
		t.Run(name, l.happens)
	}
}

// TestSwarmLosesQuorum has a swarm of its own, with three managers. Promoting and demoting the workers of the other
// swarm sometimes leaves a Docker 20.10 engine in the state "error".
func TestSwarmLosesQuorum(t *testing.T) {
	manager, name := hostsOfSwarm(t)[0], nameOfSwarm(t)
	t.Setenv("LOCKQUAKE_SWARM_NAME", name+"-b")
	t.Setenv("LOCKQUAKE_SWARM_SUBNET", "10.232.0")
	t.Setenv("DOCKER_HOST", strings.Replace(manager, name, name+"-b", 1))
	swarm := func(args ...string) {
		if said, err := exec.Command("../../.ci/swarm", args...).CombinedOutput(); err != nil {
			t.Fatalf(".ci/swarm %v: %v\n%s", args, err, said)
		}
	}
	t.Cleanup(func() { swarm("down") })
	swarm("up", "--managers", "3")
	loss{
		run: threeClients, engines: []int{2, 3}, take: cutOff, give: backAgain,
		refused: "managers", // too few managers are left, or none answers
	}.happens(t)
}

// cleanHosts waits for all hosts, and has clean remove everything.
func cleanHosts(t *testing.T) {
	t.Helper()
	wait.Until(t, time.Minute, "all hosts", func() bool {
		// Fails while there is no leader.
		b, _ := exec.Command("docker", "-H", hostsOfSwarm(t)[0], "node", "ls", "--format", "{{.Status}} {{.Availability}}").Output()
		return strings.Count(string(b), "Ready Active") == 3
	})
	// A host that was cut off may not start a relay for a while.
	var c *process
	if !wait.Within(4*time.Minute, func() bool {
		c = begin(t, "clean", "--provider", "swarm")
		return c.wait(t) == cli.CodeMet
	}) {
		t.Errorf("clean: %s", c.stderr.String())
	}
	nothingOnTheSwarm(t)
}

// lostWith checks the report of a run whose hosts were lost. It must name each lost process or server, and know
// everything about the other processes. No expectation may pass except judged. If a process was lost, no count is known
// to be zero; if only servers were lost, what was judged may be clean.
func lostWith(t *testing.T, r results.Report, hosts []string) {
	t.Helper()
	env, err := results.ReadEnv(r.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	told := func(begins string) bool {
		return slices.ContainsFunc(r.Reasons, func(reason string) bool { return strings.HasPrefix(reason, begins) })
	}
	on, lost, processes := placesOf(t, r), 0, map[string]bool{}
	for _, c := range env.Clients {
		processes[c.Name] = true
		gone := slices.Contains(hosts, on[c.Name])
		_, client := history.ClientOf(c.Name)
		begins := fmt.Sprintf("%s on host %s ended without its final message", c.Name, on[c.Name])
		if gone {
			lost++
		}
		if gone && client {
			begins += ", and the end of its process was not seen: it may have gone on; its actions after its last event, at "
		}
		if c.Lost != gone || c.Dead || c.Recorded == 0 || gone && c.Ended != "" {
			t.Errorf("on %s: %+v", on[c.Name], c)
		}
		if gone != told(begins) {
			t.Errorf("a reason that begins with %q: want it to be %t: %q", begins, gone, r.Reasons)
		}
	}
	servers := 0
	for name, host := range on {
		if slices.Contains(hosts, host) && !processes[name] {
			servers++
			if begins := fmt.Sprintf("%s on host %s is out of sight", name, host); !told(begins) {
				t.Errorf("no reason begins with %q: %q", begins, r.Reasons)
			}
		}
	}
	if lost+servers == 0 || lost == len(env.Clients) {
		t.Errorf("%d of %+v were lost, and %d servers", lost, env.Clients, servers)
	}
	for _, f := range r.Findings {
		zeros := slices.Collect(maps.Values(f.Counts))
		if lost > 0 && f.Verdict == results.Clean && slices.ContainsFunc(zeros, func(n *int64) bool { return n != nil }) {
			t.Errorf("%s is clean", f.Checker)
		}
	}
	for _, x := range r.Expectations {
		if x.Verdict == results.Pass && x.Name != "judged" {
			t.Errorf("%s: %s passes", x.Name, x.Want)
		}
	}
	if again, err := results.Judge(r.RunDir, checkers.All()); err != nil || again.Verdict != r.Verdict || !slices.Equal(again.Reasons, r.Reasons) {
		t.Errorf("judged again it is %s (%v): %q", again.Verdict, err, again.Reasons)
	}
	t.Logf("%q", r.Reasons)
}

// standing leaves a server of the second host stopped and cut off from all others, and a client there frozen, for
// longer than the tests wait.
const standing = `name: standing
claim: Faults do not outlast the supervisor.
backend: {use: etcd, lock: mutex, nodes: 3, ttl: 10s}
workload: {use: counter, clients: 2, users: 2, hold: 1ms, resource: {use: register, guard: none}}
chaos:
  - {use: partition, on: etcd-2, at: 1s, for: 60s}
  - {use: pause, on: etcd-2, at: 2s, for: 60s}
  - {use: freeze, on: client-2, at: 2s, for: 60s}
run: {for: 65s, seed: 42}
expect: {judged: ">=10"}
`

// TestSwarmStandingFaults: if the supervisor is killed or cut off, the agents of the other hosts undo the standing
// faults and end, and so do clients. The test cleans nothing before it has seen that.
func TestSwarmStandingFaults(t *testing.T) {
	for _, tt := range []struct {
		name       string
		take, give func(t *testing.T, p *process)
		rid        []int // engines that are to be rid of it
	}{
		{
			"supervisor killed", func(t *testing.T, p *process) {
				if err := p.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = p.cmd.Wait()
			}, func(*testing.T, *process) {}, []int{1, 2, 3},
		},
		{
			"cut off", func(t *testing.T, _ *process) { cutOff(t, 2) }, func(t *testing.T, p *process) {
				backAgain(t, 2)
				if code := p.wait(t); code == cli.CodeMet {
					t.Errorf("a run without one of its hosts: exit code %d", code)
				}
			}, []int{2},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := begin(t, "run", scenarioFile(t, standing), "--provider", "swarm", "--format", "json")
			has := func(engine int, what string) bool {
				return slices.ContainsFunc(stands(t, engine), func(one string) bool { return strings.Contains(one, what) })
			}
			wait.Until(t, 2*time.Minute, "one stopped, one frozen, and tables at both ends", func() bool {
				return has(2, "stopped") && has(2, "=paused") && has(1, "lockquake_") && has(2, "lockquake_") && has(3, "lockquake_")
			})
			t.Logf("stands on the second host: %q", stands(t, 2))
			tt.take(t, p)
			began := time.Now()
			for _, engine := range tt.rid {
				if !wait.Within(30*time.Second, func() bool { return len(stands(t, engine)) == 0 }) {
					t.Errorf("stands on host %d: %q", engine, stands(t, engine))
				}
				t.Logf("nothing stands on host %d after %v", engine, time.Since(began).Round(100*time.Millisecond))
			}
			tt.give(t, p)
			cleanHosts(t)
		})
	}
}

// stands lists what faults have on an engine: running agents and clients, stopped processes, and packet filter tables
// in their namespaces.
func stands(t *testing.T, engine int) []string {
	t.Helper()
	host, mark := hostsOfSwarm(t)[engine-1], "label=org.lockquake.run"
	out := strings.Fields(docker(t, host, "ps", "--filter", mark, "--filter", "name=agent", "--filter", "name=client", "--format", "{{.Names}}={{.State}}"))
	ids := strings.Fields(docker(t, host, "ps", "-q", "--filter", mark))
	if len(ids) == 0 {
		return out
	}
	const look = `for p; do sed -n 's/^State:.T.*/stopped/p' /proc/$p/status; nsenter --net=/proc/$p/ns/net nft list tables | grep -o 'lockquake_.*'; done; true`
	known, _ := exec.Command("docker", append([]string{"-H", host, "inspect", "-f", "{{.State.Pid}}"}, ids...)...).Output() // some may have ended since
	args := append([]string{"exec", nameOfHost(t, engine), "sh", "-c", look, "look"}, strings.Fields(string(known))...)
	return append(out, strings.Fields(docker(t, client.DefaultDockerHost, args...))...)
}

// cutOff disconnects the engine's container from the network of the engines. backAgain reconnects it with its previous
// address.
func cutOff(t *testing.T, engine int) {
	t.Helper()
	docker(t, client.DefaultDockerHost, "network", "disconnect", nameOfSwarm(t), nameOfHost(t, engine))
}

func backAgain(t *testing.T, engine int) {
	t.Helper()
	subnet := docker(t, client.DefaultDockerHost, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", nameOfSwarm(t))
	address := strings.Replace(strings.TrimSpace(subnet), ".0/24", fmt.Sprint(".", 10+engine), 1)
	docker(t, client.DefaultDockerHost, "network", "connect", "--ip", address, nameOfSwarm(t), nameOfHost(t, engine))
}
