//go:build integration

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

// spared is a schedule whose second injection would leave no majority, whoever leads. Its third hits a client.
const spared = `
name: spared
claim: A majority is left alone.
backend: {use: etcd, lock: mutex, nodes: 3, ttl: 3s}
workload: {use: counter, clients: 3, hold: 20ms, resource: {use: register}}
chaos:
  spare: majority
  schedule:
    - {use: pause, on: leader, at: 500ms, for: 4s}
    - {use: pause, on: followers, at: 2s, for: 500ms}
    - {use: pause, on: holder, at: 3s, for: 500ms}
run: {for: 8s, seed: 1}
expect: {judged: ">=1"}
`

// TestTheMajorityIsSpared: followers are determined when a fault is due, and only then is it known that they must be
// spared. The drawn file has the target of each fault, and runs again with the same outcome.
func TestTheMajorityIsSpared(t *testing.T) {
	leftToAll(t, "the engine's own tests spare a majority of servers that they play")
	provider := setting("LOCKQUAKE_TEST_PROVIDER", "local")
	out := t.TempDir()
	file := filepath.Join(out, "spared.yaml")
	// "followers" is always two of three, which is known to be too many beforehand. Named nodes leave the decision to
	// the moment.
	text := strings.Replace(spared, "on: followers", "on: etcd-2", 1)
	if err := os.WriteFile(file, []byte(spared), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "run", file, "--provider", provider, "--dry-run")
	if code := p.wait(t); code != cli.CodeUsage || !strings.Contains(p.stderr.String(), "spared.yaml:10:24: chaos.schedule.1.on: pause on followers can never be made with spare: majority") {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	// Two of these three are followers. They are spared, because the leader is hit already.
	text = strings.Replace(text, "    - {use: pause, on: holder", "    - {use: pause, on: etcd-3, at: 2100ms, for: 500ms}\n    - {use: pause, on: etcd-1, at: 2200ms, for: 500ms}\n    - {use: pause, on: holder", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p = begin(t, "run", file, "--provider", provider, "--format", "json", "--out", out)
		if code := p.wait(t); code != cli.CodeMet {
			t.Fatalf("exit code %d\n%s", code, p.stderr.String())
		}
		r := p.report(t)
		faults, err := results.ReadFaults(r.RunDir)
		if err != nil || len(faults) != 5 || faults[0].Receipt.Status != history.Installed {
			t.Fatalf("%v: %+v", err, faults)
		}
		leader := faults[0].Target
		for _, f := range faults[1:] {
			want := history.NotMade
			if f.Target == leader || f.Selector == "holder" {
				want = history.Installed // it is hit already; and a client is no server
			}
			if f.Receipt.Status != want || want == history.NotMade && (f.Healed != nil || !strings.Contains(f.Receipt.Evidence, "only 1 of 3 servers would be untouched")) {
				t.Errorf("the leader was %s: %+v, want %s", leader, f, want)
			}
			if f.Selector == "holder" && (f.User == nil || !strings.HasPrefix(f.Target, "client-") || !strings.Contains(f.Target, "(user ")) {
				t.Errorf("the holder is recorded as %+v", f)
			}
		}
		file = filepath.Join(r.RunDir, results.FileDrawn)
		drawn, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(drawn), "on: leader, at: 500ms, for: 4s} # "+leader) ||
			strings.Count(string(drawn), "# not made: ") != 2 || !strings.Contains(string(drawn), "} # client-") {
			t.Errorf("%v\n%s", err, drawn)
		}
		gone(t, p)
	}
}
