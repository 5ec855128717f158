package main

import (
	"math"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/scenarios"
)

// The ends are those of published tables.
func TestClopperPearson(t *testing.T) {
	for _, c := range []struct {
		k, n      int64
		low, high float64
	}{
		{0, 10, 0, 0.30850},
		{5, 10, 0.18709, 0.81291},
		{10, 10, 0.69150, 1},
		{18, 100, 0.11031, 0.26948},
		{99, 100, 0.94554, 0.99975},
		{0, 3000, 0, 0.00123},
	} {
		low, high := clopperPearson(c.k, c.n)
		if math.Abs(low-c.low) > 5e-5 || math.Abs(high-c.high) > 5e-5 {
			t.Errorf("%d of %d: %.5f to %.5f, want %.5f to %.5f", c.k, c.n, low, high, c.low, c.high)
		}
	}
}

// ran is a run of the family.
func ran(verdict string, acknowledged, lost int64) Run {
	two := int64(2)
	return Run{
		Verdict: verdict, Grants: acknowledged + 1, Acknowledged: acknowledged, Load: "1 1 1",
		Counts: map[string]*int64{"lost_elements": &lost, "overlapping_holds": &two},
	}
}

func TestUnknownRunsAreNotPooled(t *testing.T) {
	p := pooled([]State{
		{Runs: []Run{ran("pass", 50, 10), ran("unknown", 50, 50), ran("fail", 100, 5)}},
		{Runs: []Run{{Verdict: "error"}, ran("pass", 50, 0)}},
	})
	want := pool{runs: 3, unknown: 2, grants: 203, acknowledged: 200, lost: 15, overlapping: 6, least: 0, most: 0.2}
	if p != want {
		t.Errorf("pooled to %+v, want %+v", p, want)
	}
	if got := p.share(); got != "7.5 % (4.3–12.1)" {
		t.Errorf("the share is written as %s", got)
	}
	if got := (pool{}).share(); got != "–" {
		t.Errorf("the share of nothing is written as %s", got)
	}
}

// section is the family's part of the page, with the runs that each member has had.
func section(runs func(Member) []Run) string {
	rows := familyRows()
	states := make([]State, len(rows))
	for i, row := range rows {
		if row.Provider == "docker" {
			states[i] = State{Commit: "c0ffee", Runs: runs(*row.Member)}
		}
	}
	return family(rows, states)
}

func TestTheFamilysDemands(t *testing.T) {
	five := func(lost int64) []Run {
		var out []Run
		for range familyRuns {
			out = append(out, ran("pass", 50, lost))
		}
		return out
	}
	const leaders, fences = "More than none is lost by the unfenced members whose leader is stopped: ", "None is lost by the fenced members: "
	for _, c := range []struct {
		name   string
		runs   func(Member) []Run
		wanted []string
	}{
		{"all as it should be", func(m Member) []Run {
			if m.Guard != "" {
				return five(0)
			}
			return five(3)
		}, []string{
			leaders + "**met**; 90 of 1500 acknowledged elements in 30 runs of 6 rows", fences + "**met**; 0 of 500 acknowledged elements in 10 runs of 2 rows, 0.0 % (0.0–0.7). Of all 4 rows that it is asked of, 2 are not run as often as they must be.",
			"| v3lock | 3.4 | leader or all | set in etcd | docker | 5 | 0 | 0 | 255 | 250 | 0 | 0.0 % (0.0–1.5) | 0–0 % |",
			"| mutex | built-in | holder | unguarded | docker | 5 | 0 | 0 | 255 | 250 | 15 | 6.0 % (3.4–9.7) | 6–6 % |",
		}},
		{"the other way round", func(m Member) []Run {
			if m.Guard != "" {
				return five(1)
			}
			return five(0)
		}, []string{leaders + "**not met**; 0 of 1500", fences + "**not met**; 10 of 500"}},
		{"one run only", func(m Member) []Run {
			if m == (Member{Lock: "mutex", Version: "3.4", Target: "leader"}) {
				return five(1)[:1]
			}
			return nil
		}, []string{leaders + "**met**; 1 of 50 acknowledged elements in 1 runs of 1 rows", "Of all 7 rows that it is asked of, 7 are not run as often as they must be", fences[:len(fences)-2] + ": not run yet.", "| 1 (4 to go) |"}},
		{"nothing but unknown runs", func(Member) []Run { return []Run{ran("unknown", 50, 1)} }, []string{leaders[:len(leaders)-2] + ": not run yet.", "| 1 (5 to go) | 1 | 0 | 0 | 0 | 0 | – | – |"}},
	} {
		text := section(c.runs)
		for _, want := range c.wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%s: lacks %q:\n%s", c.name, want, text)
			}
		}
	}
	if text := section(func(Member) []Run { return nil }); text != "" {
		t.Errorf("a family that was not run: %s", text)
	}
}

// Each row's scenario is the member that the row says it is.
func TestMembersAreWhatTheySay(t *testing.T) {
	for _, row := range familyRows() {
		found, err := scenarios.Load(row.Scenario)
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %d scenarios, %v", row.ID(), len(found), err)
		}
		s, err := found[0].With(row.Set)
		if err != nil {
			t.Fatalf("%s: %v", row.ID(), err)
		}
		m := *row.Member
		guarded := s.Workload.Resource.Guard != "none"
		if s.Backend.Lock != m.Lock || s.Chaos[0].On != m.Target || guarded != (m.Guard != "") || s.Backend.Nodes != 5 || s.Workload.Clients != 5 {
			t.Errorf("%s is lock %s, %s stopped, guard %s", row.ID(), s.Backend.Lock, s.Chaos[0].On, s.Workload.Resource.Guard)
		}
		if !strings.Contains(s.Backend.Params.String(), "version: "+m.Version) {
			t.Errorf("%s has %s", row.ID(), s.Backend.Params)
		}
		forbids := true
		for _, e := range s.Expect {
			if e.Name == "double_grants" {
				forbids = e.Text == "0"
			}
			if e.Name == "lost_elements" && !guarded {
				t.Errorf("%s demands something of the losses of one run", row.ID())
			}
		}
		if want := m.Version != "3.4" || m.Target == "holder"; forbids != want {
			t.Errorf("%s forbids double grants: %t, want %t", row.ID(), forbids, want)
		}
	}
}
