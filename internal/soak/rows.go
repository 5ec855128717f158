package main

import (
	"path"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/all"
)

// Row is one line of the track record: a scenario, run Count times on one provider.
type Row struct {
	Scenario string
	Lock     string   // where it is another than the scenario's own, else ""
	Member   *Member  // of the family of jepsen-etcd-lock, else nil
	Set      []string // keys of the scenario that are replaced
	File     string   // of the scenario, within scenarios/; a twin lives in its story's file
	Text     string   // of the scenario, where it is in no file
	Optional bool     // whether a machine that cannot deliver it is no failure
	Backend  string
	Provider string
	Count    int
	Shows    string // what each run has to show to count; the scenario's own expectations, in words
}

// rows are the runs in which nothing may be found, as they come.
var rows = []Row{
	{
		Scenario: "etcd-healthy", File: "healthy/etcd-healthy.yaml", Backend: "etcd", Provider: "docker", Count: 20,
		Shows: "nothing at all",
	},
	{
		Scenario: "redis-healthy", File: "healthy/redis-healthy.yaml", Backend: "redis", Provider: "docker", Count: 20,
		Shows: "nothing at all",
	},
}

// healthyRows are the runs in which nothing is broken, of every lock on every backend that has servers, but for the locks
// that are wrong on purpose: 50 users want one lock for 30 s.
func healthyRows() []Row {
	var out []Row
	for _, b := range all.All() {
		if b.InProcess {
			continue
		}
		name := b.Name + "-healthy"
		for _, l := range b.Locks {
			if l.Wrong != "" {
				continue
			}
			out = append(out, Row{
				Scenario: name, Lock: l.Name, File: "healthy/" + name + ".yaml", Backend: b.Name, Provider: "docker", Count: 3,
				Set:   []string{"backend.lock=" + l.Name, "run.for=30s", "workload.clients=10", "workload.users=5"},
				Shows: "nothing at all, 50 users, 30 s",
			})
		}
	}
	return out
}

// allRows are the stories first, then the healthy runs by backend, then the faults by backend, then the family of runs of
// which only rates can be told.
func allRows() []Row {
	return slices.Concat(storyRows(), rows, healthyRows(), faultRows(), familyRows())
}

// Name is what the page calls the row.
func (r Row) Name() string {
	if r.Lock == "" {
		return r.Scenario
	}
	return r.Scenario + ", " + r.Lock
}

// ID names the row among all rows and in the folder of states.
func (r Row) ID() string {
	switch {
	case r.Member != nil && r.Set != nil: // one that the story's file has is named by its scenario
		return r.Scenario + r.Member.id() + "@" + r.Provider
	case r.Lock == "":
		return r.Scenario + "@" + r.Provider
	}
	return r.Scenario + "+" + r.Lock + "@" + r.Provider
}

// takes tells whether a run counts for the row. What says nothing about a member of the family is pooled with nothing: it is shown, and
// another run is made for it.
func (r Row) takes(run Run) bool { return r.Member == nil || run.judged() }

// story tells whether the row is one of a story or a twin, and not of the family of runs that take two minutes each.
func (r Row) story() bool { return r.Member == nil && strings.HasPrefix(r.File, "stories/") }

// Matches tells whether a pattern names the row, by its id or by its scenario alone.
func (r Row) Matches(pattern string) (bool, error) {
	byID, err := path.Match(pattern, r.ID())
	byScenario, _ := path.Match(pattern, r.Scenario)
	return byID || byScenario, err
}
