package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/results"
)

func TestDifferences(t *testing.T) {
	t.Parallel()
	then := map[string]string{"a": "1", "b": "2", "gone": "3"}
	if d := differences(map[string]string{"a": "1", "b": "2", "gone": "3"}, then); d != nil {
		t.Errorf("the same differs: %v", d)
	}
	got := differences(map[string]string{"a": "1", "b": "x", "new": "4"}, then)
	want := []string{`b is "x" and was "2"`, `gone is "" and was "3"`, `new is "4" and was ""`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := differences(map[string]string{"c": "1", "d": "1"}, then); len(got) != 4 || got[3] != "2 more" {
		t.Errorf("five differences are told as %q", got)
	}
}

// cleared is a service that can be reset.
type cleared struct {
	backends.Service
	backends.Resetter
}

// TestWhoIsNotKept goes through what a run can leave that no look afterwards would show.
func TestWhoIsNotKept(t *testing.T) {
	t.Parallel()
	kill, _ := chaos.Lookup("kill")
	keeps, err := kill.New(func(any) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	loses, err := kill.New(func(into any) error { return yaml.UnmarshalWithOptions([]byte("data: lose"), into, yaml.Strict()) })
	if err != nil {
		t.Fatal(err)
	}
	bit, healed := history.Receipt{Status: history.Installed}, &history.Receipt{Status: history.Installed}
	fault := func(f chaos.Fault, r history.Fault) func(*run) {
		return func(r2 *run) {
			r.Name, r.Target = "kill", "redis-1"
			r2.faults, r2.injected = []*history.Fault{&r}, []injection{{kind: kill, fault: f}}
		}
	}
	for _, c := range []struct {
		name, why string
		change    func(*run)
	}{
		{"all is well", "", func(*run) {}},
		{"a crash that was healed", "", fault(keeps, history.Fault{Receipt: bit, Healed: healed})},
		{"a crash without a heal", "was not seen healed", fault(keeps, history.Fault{Receipt: bit})},
		{"a heal that was not seen", "was not seen healed", fault(keeps, history.Fault{Receipt: bit, Healed: &history.Receipt{Status: history.Indeterminate}})},
		{"data that is lost", "took data away", fault(loses, history.Fault{Receipt: bit, Healed: healed})},
		{"a fault that was not made", "", fault(loses, history.Fault{Receipt: history.Receipt{Status: history.NotMade}})},
		{"an interruption", "cut short", func(r *run) { r.env.Interrupted = true }},
		{"no recovery", "not seen to serve", func(r *run) { r.env.Recovered = false }},
		{"a question", "left a question: a step was not met", func(r *run) { r.env.Unknown = []string{"a step was not met"} }},
		{"a preparation", "was prepared for a fault (loop-disk)", func(r *run) { r.plan.specs[0].Preparations = []chaos.Preparation{chaos.LoopDisk} }},
		{"a service without reset", "nobody knows how to reset redis", func(r *run) { r.service = nil }},
	} {
		r := &run{
			plan: &Plan{specs: []cluster.Spec{{Name: "redis-1", Role: cluster.Server}}, backend: backends.Backend{Name: "redis"}},
			env:  results.Env{Recovered: true}, service: cleared{},
		}
		c.change(r)
		if why := r.unfit(); (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", c.name, why, c.why)
		}
	}
}
