package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/scenarios"
)

func TestRowsCanBeRun(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range allRows() {
		if seen[row.ID()] {
			t.Errorf("two rows are called %s", row.ID())
		}
		seen[row.ID()] = true
		if row.Text != "" {
			continue // internal/tryout reads these
		}
		if _, err := os.Stat(filepath.Join("..", "..", "scenarios", row.File)); err != nil {
			t.Errorf("%s: %v", row.ID(), err)
		}
		found, err := scenarios.Load(row.Scenario)
		if err != nil || len(found) != 1 {
			t.Errorf("%s: %d scenarios, %v", row.ID(), len(found), err)
			continue
		}
		s, err := found[0].With(row.Set)
		if err != nil {
			t.Errorf("%s: %v", row.ID(), err)
		}
		if s.Backend.Use != row.Backend {
			t.Errorf("%s is a row of %s, and its scenario uses %s", row.ID(), row.Backend, s.Backend.Use)
		}
		if row.Lock != "" && (s.Backend.Lock != row.Lock || s.Workload.Clients*s.Workload.Users != 50) {
			t.Errorf("%s has lock %s and %d users", row.ID(), s.Backend.Lock, s.Workload.Clients*s.Workload.Users)
		}
	}
}

func TestEveryFaultHasItsRows(t *testing.T) {
	rows := faultRows()
	for _, k := range chaos.Kinds() {
		for _, b := range all.All() {
			has := slices.ContainsFunc(rows, func(r Row) bool { return r.Scenario == "fault-"+k.Name+"-"+b.Name })
			leads := slices.Contains([]string{"etcd", "zookeeper", "sentinel", "rediscluster"}, b.Name)
			if want := !b.InProcess && (k.Name != "failover" || leads); has != want {
				t.Errorf("%s on %s has a row: %t, want %t", k.Name, b.Name, has, want)
			}
		}
	}
}

func TestEverySafeLockHasItsHealthyRow(t *testing.T) {
	rows := healthyRows()
	for _, b := range all.All() {
		for _, l := range b.Locks {
			has := slices.ContainsFunc(rows, func(r Row) bool { return r.Backend == b.Name && r.Lock == l.Name })
			if want := l.Wrong == "" && !b.InProcess; has != want {
				t.Errorf("%s of %s has a row: %t, want %t", l.Name, b.Name, has, want)
			}
		}
	}
}

func TestRowsAreChosen(t *testing.T) {
	o := options{rows: allRows()}
	for pattern, want := range map[string]string{
		"redis-healthy+redsync@docker": "redis-healthy+redsync@docker", "etcd-holder-pause@docker": "etcd-holder-pause@docker", "*+chubby@*": "etcd-healthy+chubby@docker",
	} {
		o.only = pattern
		chosen, err := o.chosen()
		if err != nil || len(chosen) != 1 || chosen[0].ID() != want {
			t.Errorf("%s chooses %v, %v", pattern, chosen, err)
		}
	}
	for _, pattern := range []string{"nothing", "["} {
		o.only = pattern
		if chosen, err := o.chosen(); err == nil {
			t.Errorf("%s chooses %v", pattern, chosen)
		}
	}
}

func TestModulesAreThoseOfTheBackend(t *testing.T) {
	list, err := modulesOf("../..", Row{Backend: "redis"}.Packages())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(list, "\n")
	for module, want := range map[string]bool{"go 1.": true, "github.com/redis/go-redis/v9 v9.": true, "go.etcd.io/etcd/client": false, "chromedp": false} {
		if strings.Contains(text, module) != want {
			t.Errorf("%s among the modules of redis: %t, want %t", module, !want, want)
		}
	}
}
