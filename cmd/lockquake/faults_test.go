//go:build integration

package main

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/results"
)

// TestFaults has each fault act on one backend that supports it, and be healed. The backends take turns, so that all
// are hit. Every combination is a row of the track record, which runs the same scenarios.
func TestFaults(t *testing.T) {
	leftToAll(t, "TestEveryFault delivers each on etcd or Redis")
	provider := setting("LOCKQUAKE_TEST_PROVIDER", "docker")
	turn := 0
	for _, k := range faults.Kinds() {
		var on []listed.Backend
		for _, b := range all.All() {
			if tryout.Applies(k, b) {
				on = append(on, b)
			}
		}
		if len(on) == 0 {
			continue
		}
		b := on[turn%len(on)]
		turn++
		t.Run(k.Name+"-"+b.Name, func(t *testing.T) {
			if k.Name != "freeze" { // next to others, runc sometimes gives up after its 1000 tries: "unable to freeze"
				t.Parallel()
			}
			o, err := tryout.One(k, 0, b)
			if err != nil {
				t.Fatal(err)
			}
			p := begin(t, "run", scenarioFile(t, tryout.Scenario(o)), "--provider", provider, "--format", "json")
			switch code := p.wait(t); code {
			case cli.CodeMissing:
				// Not every kernel supports every fault. If one is missing, lockquake must name it before anything
				// starts.
				if said := p.stderr.String(); k.Name != "duplicate" || !strings.Contains(said, "sch_netem") || p.stdout.String() != "" {
					t.Errorf("it cannot be delivered here: %s", said)
				}
			default:
				acted(t, p.report(t), k, code)
			}
			gone(t, p)
		})
	}
}

// acted demands that the run's only fault was seen to act, and to be gone afterwards.
func acted(t *testing.T, r results.Report, k chaos.Kind, code int) {
	t.Helper()
	if len(r.Faults) != 1 {
		t.Fatalf("%d faults, exit code %d: %q", len(r.Faults), code, r.Reasons)
	}
	f := r.Faults[0]
	if f.Receipt.Status != history.Installed {
		t.Errorf("while it stands: %s: %s", f.Receipt.Status, f.Receipt.Evidence)
	}
	switch {
	case f.Healed != nil && f.Healed.Status != history.Installed:
		t.Errorf("healed: %s: %s", f.Healed.Status, f.Healed.Evidence)
	case f.Healed == nil && k.Lasting:
		t.Error("nothing tells that it was healed")
	}
	if code != 0 {
		t.Errorf("exit code %d: %q", code, r.Reasons)
	}
}
