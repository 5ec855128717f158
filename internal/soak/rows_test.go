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
			if want := !b.InProcess && k.Name != "noop" && (k.Name != "failover" || leads); has != want {
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
	o.only = "*+chubby@*,*-holder-pause@docker,etcd-holder-pause@*"
	if chosen, err := o.chosen(); err != nil || len(chosen) < 5 {
		t.Errorf("several patterns choose %v, %v", chosen, err)
	}
	for _, pattern := range []string{"nothing", "[", "etcd-healthy@docker,nothing"} {
		o.only = pattern
		if chosen, err := o.chosen(); err == nil {
			t.Errorf("%s chooses %v", pattern, chosen)
		}
	}
}

// A change of one story's file, or of one service, must not make the figures of all others old; one of what a row runs must.
func TestRowsDependOnWhatTheyRun(t *testing.T) {
	packages, err := listPackages("../..")
	if err != nil {
		t.Fatal(err)
	}
	for id, c := range map[string]struct{ with, without []string }{
		"redis-restart-amnesia@docker": {
			with: []string{
				"backends/redis/*", "backends/*", "internal/engine/*", "internal/client/*", "internal/cluster/*", "internal/agent/*", "chaos/*", "workloads/resource/*",
				"results/*", "scenarios/*", "lock/*", "history/*", "images/redis*/**", "go 1.", "github.com/redis/go-redis/v9 v9.", "name: redis-restart-amnesia\n",
			},
			without: []string{
				"backends/etcd/", "backends/zookeeper/", "backends/postgres/", "backends/all/", "results/report/", "cmd/", "internal/soak", "internal/tryout", "docs", "images/etcd",
				"go-zookeeper/zk", "go.etcd.io/etcd/server", "chromedp", "gonum", "aof-always",
			},
		},
		"etcd-holder-pause@local": {
			with:    []string{"backends/etcd/*", "backends/etcd/node/*", "go.etcd.io/etcd/server/v3 v3.", "images/etcd*/**"},
			without: []string{"backends/redis/", "backends/postgres/", "rueidis"},
		},
		"flash-sale@docker":            {with: []string{"backends/redis/*", "backends/postgres/*", "images/postgres*/**"}, without: []string{"backends/etcd/"}},
		"etcd-healthy+mutex@docker":    {with: []string{"lock: mutex", "clients: 10"}, without: []string{"backends/redis/"}},
		"fault-pause-zookeeper@docker": {with: []string{"backends/zookeeper/*", "name: fault-pause-zookeeper"}, without: []string{"backends/etcd/", "internal/tryout"}},
	} {
		i := slices.IndexFunc(allRows(), func(r Row) bool { return r.ID() == id })
		if i < 0 {
			t.Errorf("there is no row %s", id)
			continue
		}
		row := allRows()[i]
		n := packages.of(row)
		s, err := row.scenario()
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(append(append(row.paths(n), n.modules...), string(s.Text)), "\n")
		for _, want := range c.with {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not depend on %s:\n%s", id, want, text)
			}
		}
		for _, other := range c.without {
			if strings.Contains(text, other) {
				t.Errorf("%s depends on %s", id, other)
			}
		}
	}
}
