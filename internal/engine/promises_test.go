package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// promising returns a schedule with its promise. Its times are so far apart that no stall of the machine changes
// their order.
func promising(promise string, entries ...string) string {
	return strings.Replace(scheduled(), "for: 400ms", "for: 1500ms", 1) + "chaos:\n  " + promise + "\n  schedule:\n    - " + strings.Join(entries, "\n    - ") + "\n"
}

// TestSchedulePromisesAreKept: an injection that would break the promise is not made, and says why.
func TestSchedulePromisesAreKept(t *testing.T) {
	t.Parallel()
	const one, two = "server-1", "server-2"
	at := func(on, when string) string { return "{use: trouble, on: " + on + ", " + when + "}" }
	for _, c := range []struct {
		name, promise string
		entries       []string
		want          []string // by injection: a part of its evidence; "": it is made
		fails         bool     // the heals fail
	}{
		{
			"never: the one before stands to the end", "overlap: never",
			[]string{at(one, "at: 10ms"), at(two, "at: 50ms, for: 10ms")},
			[]string{"", "the run ended while the previous one was active"},
			false,
		},
		{
			"never: too little of the run is left", "overlap: never",
			[]string{at(one, "at: 10ms, for: 200ms"), at(two, "at: 50ms, for: 1400ms")},
			[]string{"", "when the previous one was healed, only"},
			false,
		},
		{
			"never: the one before stands to the end, and two wait for it", "overlap: never",
			[]string{at(one, "at: 10ms"), at(two, "at: 50ms, for: 10ms"), at(one, "at: 60ms, for: 10ms")},
			[]string{"", "the run ended while the previous one was active", "the run ended while the previous one was active"},
			false,
		},
		{
			"never: late, and there is just time for it", "overlap: never",
			[]string{at(one, "at: 10ms, for: 200ms"), at(two, "at: 50ms, for: 1288ms")},
			[]string{"", ""},
			false,
		},
		{
			"never: late, and it would be healed at the very end", "overlap: never",
			[]string{at(one, "at: 10ms, for: 200ms"), at(two, "at: 50ms, for: 1289ms")},
			[]string{"", "when the previous one was healed, only 1.289s of the run were left"},
			false,
		},
		{
			"never: less than 100 ms late", "overlap: never",
			[]string{at(one, "at: 10ms, for: 288ms"), at(two, "at: 200ms, for: 1400ms")},
			[]string{"", ""},
			false,
		},
		{
			"never: 100 ms late", "overlap: never",
			[]string{at(one, "at: 10ms, for: 289ms"), at(two, "at: 200ms, for: 1400ms")},
			[]string{"", "when the previous one was healed, only 1.2s of the run were left"},
			false,
		},
		{
			"never: the one before is healed in time", "overlap: never",
			[]string{at(one, "at: 10ms, for: 50ms"), at(two, "at: 20ms, for: 50ms")},
			[]string{"", ""},
			false,
		},
		{
			"other nodes: the same node", "overlap: other-nodes",
			[]string{at(one, "at: 10ms"), at(one, "at: 50ms, for: 10ms")},
			[]string{"", "another one is active on server-1, and only those on other nodes may overlap"},
			false,
		},
		{
			"other nodes: another node", "overlap: other-nodes",
			[]string{at(one, "at: 10ms"), at(two, "at: 50ms, for: 10ms")},
			[]string{"", ""},
			false,
		},
		{
			"other nodes: the same node, after the heal", "overlap: other-nodes",
			[]string{at(one, "at: 10ms, for: 20ms"), at(one, "at: 1s, for: 10ms")},
			[]string{"", ""},
			false,
		},
		{
			"other nodes: the same node, after a heal that failed", "overlap: other-nodes",
			[]string{at(one, "at: 10ms, for: 20ms"), at(one, "at: 1s, for: 10ms")},
			[]string{"", "another one is active on server-1"},
			true,
		},
		{
			"majority: a second server", "spare: majority",
			[]string{at(one, "at: 10ms"), at(two, "at: 50ms, for: 10ms")},
			[]string{"", "with server-1, server-2 hit, only 1 of 3 servers would be untouched, which is no majority"},
			false,
		},
		{
			"majority: the same server again, and a client", "spare: majority",
			[]string{at(one, "at: 10ms"), at(one, "at: 50ms, for: 10ms"), at("client-1", "at: 60ms, for: 10ms")},
			[]string{"", "", ""},
			false,
		},
		{
			"majority: a holder beside a server", "spare: majority",
			[]string{at(one, "at: 10ms"), at("holder", "at: 50ms, for: 10ms")},
			[]string{"", ""},
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &fakeFault{}
			if c.fails {
				f.heal = answers(history.NotInstalled, errTest)
			}
			s := &testbed{t: t, servers: 3, faults: map[string]*fakeFault{"trouble": f}, scripts: map[string]script{"client-1": (&holding{}).script()}}
			got := s.run(t.Context(), promising(c.promise, c.entries...))
			if len(got.faults) != len(c.want) {
				t.Fatalf("%d injections, want %d", len(got.faults), len(c.want))
			}
			drawn, err := os.ReadFile(filepath.Join(got.dir, results.FileDrawn))
			if err != nil {
				t.Fatal(err)
			}
			_, list, _ := strings.Cut(string(drawn), "\nchaos:")
			_, list, _ = strings.Cut(list, "- {")
			lines := strings.Split("- {"+list, "\n")
			made := 0
			for i, f := range got.faults {
				if f.Planned <= got.env.Start {
					t.Errorf("injection %d was planned for %d, and the load began at %d", i+1, f.Planned, got.env.Start)
				}
				status := history.Installed
				if c.want[i] != "" {
					status = history.NotMade
				} else {
					made++
				}
				note := ""
				switch {
				case status == history.NotMade:
					note = "# not made: " + c.want[i]
				case f.Selector == "holder":
					note = "# client-1 (user 0, lock-0)"
				}
				if _, said, _ := strings.Cut(lines[i], "} "); (said == "") != (note == "") || !strings.HasPrefix(said, note) {
					t.Errorf("behind injection %d the drawn schedule says %q, want %q", i+1, said, note)
				}
				if f.Receipt.Status != status || !strings.Contains(f.Receipt.Evidence, c.want[i]) {
					t.Errorf("injection %d is %s: %q; want %s: %q", i+1, f.Receipt.Status, f.Receipt.Evidence, status, c.want[i])
				}
			}
			if f.healed() != made {
				t.Errorf("%d were made and %d healed", made, f.healed())
			}
		})
	}
}

// TestATargetOnWhichNoPromiseCanBeKept is rejected before the start.
func TestATargetOnWhichNoPromiseCanBeKept(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, servers: 3, faults: map[string]*fakeFault{"trouble": {}}}
	_, err := Check(s.options(promising("spare: majority", "{use: trouble, on: all, at: 10ms, for: 10ms}")))
	if err == nil || !strings.Contains(err.Error(), "trouble on all can never be made with spare: majority") {
		t.Errorf("%v", err)
	}
}

// TestAHolderThatMayNotBeHitGoesOn after it was stopped in order to aim.
func TestAHolderThatMayNotBeHitGoesOn(t *testing.T) {
	t.Parallel()
	h := &holding{}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}, scripts: map[string]script{"client-1": h.script()}}
	got := s.run(t.Context(), promising("overlap: other-nodes", "{use: trouble, on: client-1, at: 10ms}", "{use: trouble, on: holder, at: 50ms, for: 10ms}"))
	if r := got.faults[1].Receipt; r.Status != history.NotMade || got.faults[1].Bit != 0 {
		t.Errorf("%+v, bit at %d", r, got.faults[1].Bit)
	}
	if h.stops != 1 || h.resumed != 1 {
		t.Errorf("%d stops, %d times continued", h.stops, h.resumed)
	}
}
