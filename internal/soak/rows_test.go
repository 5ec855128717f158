package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/scenarios"
)

func TestRowsCanBeRun(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range allRows() {
		if seen[row.ID] {
			t.Errorf("two rows are called %s", row.ID)
		}
		seen[row.ID] = true
		if row.Text != "" {
			continue // internal/tryout reads these
		}
		found, err := scenarios.Load(row.Scenario)
		if err != nil || len(found) != 1 {
			t.Errorf("%s: %d scenarios, %v", row.ID, len(found), err)
			continue
		}
		s, err := found[0].With(row.Set)
		if err != nil {
			t.Errorf("%s: %v", row.ID, err)
		}
		_, l, healthy := strings.Cut(strings.TrimSuffix(row.ID, "@docker"), "-healthy+")
		if healthy && (s.Backend.Lock != l || s.Workload.Clients*s.Workload.Users != 50) {
			t.Errorf("%s has lock %s and %d users", row.ID, s.Backend.Lock, s.Workload.Clients*s.Workload.Users)
		}
	}
}

func TestEveryFaultHasItsRows(t *testing.T) {
	rows := faultRows()
	for _, k := range faults.Kinds() {
		for _, b := range all.All() {
			has := slices.ContainsFunc(rows, func(r Row) bool { return r.Scenario == "fault-"+k.Name+"-"+b.Name })
			top, err := tryout.Topology(b)
			if err != nil {
				t.Fatal(err)
			}
			_, leads := chaos.As[chaos.Promoter](top.Service(nil))
			_, refuses := chaos.As[chaos.WriteRefuser](top.Service(nil))
			if b.Servers.RefusesRenewals && !refuses {
				t.Errorf("%s denies renewals, and cannot be made to refuse writes", b.Name)
			}
			_, evicts := chaos.As[chaos.Evictor](top.Service(nil))
			_, compacts := chaos.As[chaos.Compactor](top.Service(nil))
			can := map[string]bool{"noop": false, "failover": leads, "refuse-writes": refuses, "compact": compacts, "maxmemory": evicts, "exec": b.Name != "etcd"} // built in: no shell
			applies, asked := can[k.Name]
			if want := !b.InProcess && (applies || !asked); has != want {
				t.Errorf("%s on %s has a row: %t, want %t", k.Name, b.Name, has, want)
			}
		}
	}
}

func TestEverySafeLockHasItsHealthyRow(t *testing.T) {
	rows := healthyRows()
	for _, b := range all.All() {
		for _, l := range b.Locks {
			has := slices.ContainsFunc(rows, func(r Row) bool { return r.ID == b.Name+"-healthy+"+l.Name+"@docker" })
			if want := l.Wrong == "" && !b.InProcess; has != want {
				t.Errorf("%s of %s has a row: %t, want %t", l.Name, b.Name, has, want)
			}
		}
	}
}

func TestRowsAreChosen(t *testing.T) {
	for pattern, want := range map[string]string{
		"redis-healthy+redsync@docker": "redis-healthy+redsync@docker", "etcd-holder-pause@docker": "etcd-holder-pause@docker", "*+chubby@*": "etcd-healthy+chubby@docker",
	} {
		chosen, err := choose(allRows(), pattern, false, 7)
		if err != nil || len(chosen) != 1 || chosen[0].ID != want || chosen[0].Count != 7 {
			t.Errorf("%s chooses %v, %v", pattern, chosen, err)
		}
	}
	if chosen, err := choose(allRows(), "*+chubby@*,*-holder-pause@docker,etcd-holder-pause@*", false, 0); err != nil || len(chosen) < 5 {
		t.Errorf("several patterns choose %v, %v", chosen, err)
	}
	for _, pattern := range []string{"nothing", "[", "etcd-healthy@docker,nothing"} {
		if chosen, err := choose(allRows(), pattern, false, 0); err == nil {
			t.Errorf("%s chooses %v", pattern, chosen)
		}
	}
	if all, err := choose(allRows(), "", false, 0); err != nil || len(all) != len(allRows()) || all[0].Count != 20 {
		t.Errorf("all are %d rows, %v", len(all), err)
	}
}

// A single pass runs each story and twin once, each fault once per backend, and four of the family.
func TestQuickRows(t *testing.T) {
	quick, err := choose(allRows(), "", true, 0)
	if err != nil {
		t.Fatal(err)
	}
	family, stories := 0, 0
	for _, row := range quick {
		if row.Count != 1 || row.Provider != "docker" {
			t.Errorf("%s is run %d times by %s", row.ID, row.Count, row.Provider)
		}
		if row.rated() {
			family++
		} else if row.Text == "" {
			stories++
		}
	}
	if family != 4 || 2*stories != len(storyRows()) || len(quick) != family+stories+len(faultRows()) {
		t.Errorf("%d rows: %d of the family, %d stories", len(quick), family, stories)
	}
}

// Each row of the family is the member that its name says.
func TestFamilyRowsMatchTheirNames(t *testing.T) {
	for _, row := range familyRows() {
		found, err := scenarios.Load(row.Scenario)
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %d scenarios, %v", row.ID, len(found), err)
		}
		s, err := found[0].With(row.Set)
		if err != nil {
			t.Fatalf("%s: %v", row.ID, err)
		}
		lock, version, target := s.Backend.Lock, "3.4", s.Chaos[0].On
		if strings.Contains(s.Backend.Params.String(), "version: built-in") {
			version = "built-in"
		}
		if row.Set != nil && row.ID != strings.Join([]string{familyStory, lock, version, strings.ReplaceAll(target, " ", "-")}, "+")+"@docker" {
			t.Errorf("%s is lock %s of etcd %s, %s stopped", row.ID, lock, version, target)
		}
		if strings.Contains(row.ID, "leader@") != (target == "leader") || s.Backend.Nodes != 5 || s.Workload.Clients != 5 {
			t.Errorf("%s: %s stopped, %d nodes, %d clients", row.ID, target, s.Backend.Nodes, s.Workload.Clients)
		}
		guarded := s.Workload.Resource.Guard != "none"
		if guarded != fenced(row.ID) {
			t.Errorf("%s has the guard %s", row.ID, s.Workload.Resource.Guard)
		}
		forbids := true
		for _, e := range s.Expect {
			if e.Name == "double_grants" {
				forbids = e.Text == "0"
			}
			if e.Name == "lost_elements" && !guarded && !e.Free() {
				t.Errorf("%s demands something of the losses of one run", row.ID)
			}
		}
		if want := version != "3.4" || target == "holder"; forbids != want {
			t.Errorf("%s forbids double grants: %t, want %t", row.ID, forbids, want)
		}
	}
}
