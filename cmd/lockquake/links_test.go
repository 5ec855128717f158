//go:build integration

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

// entangled is a scenario whose first two faults are healed while faults from the other end still stand on their
// links.
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

// deafPrograms returns a function that makes a lockquake with a sabotaged agent: it acknowledges some orders without
// carrying them out.
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
		script := fmt.Sprintf("#!/bin/sh\nif [ \"$2\" = agent ]; then TESTNODE_DEAF='%s' TESTNODE_DEAF_ANSWER='%s' exec %s agent; fi\nexec %s \"$@\"\n",
			s.deaf, s.answer, node, real)
		path := filepath.Join(dir, fmt.Sprintf("lockquake-%d", made))
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// deafProgram returns a lockquake whose agent acknowledges some orders, separated by commas, without carrying them
// out.
func deafProgram(t *testing.T, orders string) string {
	t.Helper()
	return deafPrograms(t)(sabotage{deaf: orders})
}

// withAndWithout runs a scenario twice, in parallel with other tests. With a real agent, on the given provider, it
// must pass. With an agent that is deaf to the orders, on local processes, it must be unknown. Each report is passed
// to look. `make test` makes only the second run.
func withAndWithout(t *testing.T, text, orders, provider string, look func(deaf bool, r results.Report)) {
	t.Helper()
	t.Parallel()
	real := program(t)
	for _, deaf := range []bool{false, true} {
		if !deaf && !everything() {
			continue // TestEveryFault sees the fault act
		}
		nodes, want, verdict := real, cli.CodeMet, results.Pass
		if deaf {
			nodes, want, verdict, provider = deafProgram(t, orders), cli.CodeInconclusive, results.Unknown, "local"
		}
		p := beginProgram(t, "env", "LOCKQUAKE_BIN="+nodes, real, "run", scenarioFile(t, text), "--provider", provider, "--format", "json")
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

// TestFaultsOfOneLinkAreHealedOneByOne: each heal is confirmed, whatever the other faults still do, and in the end the
// links are whole.
func TestFaultsOfOneLinkAreHealedOneByOne(t *testing.T) {
	leftToAll(t, "TestOverlappingLinkFaults of internal/cluster heals two of them in both orders")
	if os.Geteuid() != 0 {
		t.Skip("network namespaces of the local provider need root")
	}
	p := begin(t, "run", scenarioFile(t, entangled), "--provider", "local", "--format", "json")
	if code := p.wait(t); code != cli.CodeMet {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	r := p.report(t)
	excused := 0
	for _, f := range r.Faults {
		t.Logf("%s on %s: %+v, healed: %+v", f.Name, f.Target, f.Receipt, f.Healed)
		if f.Healed == nil || f.Healed.Status != "installed" {
			t.Errorf("%s on %s: healed with %+v", f.Name, f.Target, f.Healed)
		} else if strings.Contains(f.Healed.Evidence, "was active there too") {
			excused++
		}
	}
	if len(r.Faults) != 4 || excused == 0 {
		t.Errorf("%d faults, of which %d were healed while another was seen on their links", len(r.Faults), excused)
	}
	gone(t, p)
}
