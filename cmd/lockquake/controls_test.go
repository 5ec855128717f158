package main

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/backends/memory"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
)

// beyondMemory lists the violations that no memory lock can show, and why.
var beyondMemory = map[string]string{
	"minority_denials":         "memory has no servers; redlock/redlock-unanimous shows it in the story hang-one",
	"errors_after_recovery":    "nothing can be broken there; redis/evalsha-only shows it in the story restart",
	"client_leaks":             "memory's clients are no processes; redis/leaks-descriptors and redis/leaks-threads show it in the story contention",
	"acknowledged_writes_lost": "it rests on what servers answer, and memory has none",
}

// TestControlsAreComplete: a control runs each broken memory lock, and a control demands each violation.
func TestControlsAreComplete(t *testing.T) {
	controls, err := scenarios.Load("controls/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range memory.Backend().Locks {
		if l.Wrong != "" && !slices.ContainsFunc(controls, func(s scenarios.Scenario) bool { return s.Backend.Lock == l.Name }) {
			t.Errorf("no scenario in scenarios/controls runs memory's %s, which is wrong", l.Name)
		}
	}
	for _, k := range checkers.All() {
		for _, q := range k.Counts {
			demanded := slices.ContainsFunc(controls, func(s scenarios.Scenario) bool {
				return slices.ContainsFunc(s.Expect, func(e scenarios.Expectation) bool { return e.Name == q.Name && !e.Holds(0) })
			})
			if q.Tone == results.Violation && demanded == (beyondMemory[q.Name] != "") {
				t.Errorf("%s should be either demanded by a scenario in scenarios/controls, or in the list beyondMemory", q.Name)
			}
		}
	}
}
