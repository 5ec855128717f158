package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/all"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/scenarios"
)

// Row is one line of the track record: a scenario, run Count times on one provider.
type Row struct {
	ID       string // names the row among all
	Scenario string
	Text     string   // of the scenario of a fault, which has no file
	Set      []string // keys of the scenario that are replaced
	Provider string
	Count    int
	Quick    bool // run by -quick
}

// allRows derives the rows from the lists of stories, locks and faults, so that new entries get rows.
func allRows() []Row {
	return slices.Concat(storyRows(), healthyRows(), faultRows(), familyRows(), rateRows())
}

// storyRows returns the stories and their twins, 20 and 5 times with containers, and as processes. The family has its
// own rows.
func storyRows() []Row {
	var docker, local []Row
	for _, l := range scenarios.Names() {
		if !strings.HasPrefix(l.File, "stories/") || l.File == "stories/"+familyStory+".yaml" {
			continue
		}
		row := Row{ID: l.Name + "@docker", Scenario: l.Name, Provider: "docker", Count: 20, Quick: true}
		if l.Path+".yaml" != l.File {
			row.Count = 5
		}
		docker, local = append(docker, row), append(local, row.local())
	}
	return append(docker, local...)
}

// local returns the row with processes instead of containers.
func (r Row) local() Row {
	r.ID, r.Provider, r.Count, r.Quick = r.Scenario+"@local", "local", 3, false
	return r
}

// healthyRows returns two backends with their own scenarios, and every lock that is not wrong on purpose with 50
// contending users for 30 s.
func healthyRows() []Row {
	out := []Row{
		{ID: "etcd-healthy@docker", Scenario: "etcd-healthy", Provider: "docker", Count: 20},
		{ID: "redis-healthy@docker", Scenario: "redis-healthy", Provider: "docker", Count: 20},
	}
	for _, b := range all.All() {
		for _, l := range b.Locks {
			if b.InProcess || l.Wrong != "" {
				continue
			}
			out = append(out, Row{
				ID: b.Name + "-healthy+" + l.Name + "@docker", Scenario: b.Name + "-healthy", Provider: "docker",
				Count: 3,
				Set:   []string{"backend.lock=" + l.Name, "run.for=30s", "workload.clients=10", "workload.users=5"},
			})
		}
	}
	return out
}

// faultRows returns all faults on all backends that they apply to.
func faultRows() []Row {
	var out []Row
	for _, b := range all.All() {
		for _, k := range faults.Kinds() {
			if !tryout.Applies(k, b) {
				continue
			}
			o, err := tryout.One(k, 0, b)
			if err != nil { // a backend with servers has one to hit
				panic(err)
			}
			out = append(out, Row{
				ID: o.Name + "@docker", Scenario: o.Name, Text: tryout.Scenario(o),
				Provider: "docker", Count: 3, Quick: true,
			})
		}
	}
	return out
}

// familyStory is the story whose figures are rates. Its members differ by lock, version of etcd and stopped process,
// and their runs are pooled.
const familyStory = "jepsen-etcd-lock"

// familyQuick lists the four most informative members. They are Jepsen's own, the one that loses most, the newest
// etcd with only the holder stopped, and the one whose fence loses nothing.
var familyQuick = []string{
	familyStory + "+v3lock-blind+3.4+leader-or-all@docker", familyStory + "+v3lock-blind+3.4+leader@docker",
	familyStory + "+mutex+built-in+holder@docker", familyStory + "-fenced@docker",
}

// familyRows returns all members with containers. Those in the story's file are run as processes too.
func familyRows() []Row {
	var docker, local []Row
	add := func(id, scenario string, set ...string) {
		docker = append(docker, Row{
			ID: id, Scenario: scenario, Set: set, Provider: "docker", Count: 5,
			Quick: slices.Contains(familyQuick, id),
		})
	}
	for _, version := range []string{"3.4", "built-in"} {
		for _, l := range []string{"v3lock-blind", "v3lock", "mutex"} {
			for _, target := range []string{"leader or all", "leader", "one", "all", "holder"} {
				set := []string{"backend.lock=" + l, "backend.version=" + version, "chaos.0.on=" + target}
				if version != "3.4" || target == "holder" { // a server of 3.4 that was stopped grants twice
					set = append(set, "expect.double_grants=0")
				}
				id := strings.Join([]string{familyStory, l, version, strings.ReplaceAll(target, " ", "-")}, "+") +
					"@docker"
				add(id, familyStory, set...)
			}
		}
	}
	for _, l := range scenarios.Names() {
		if l.File != "stories/"+familyStory+".yaml" {
			continue
		}
		if id := l.Name + "@docker"; fenced(id) { // the other twins are above
			add(id, l.Name)
		}
		local = append(local, Row{Scenario: l.Name}.local())
	}
	return append(docker, local...)
}

// rateRows returns the scenarios that measure how often something happens. Their runs are pooled: ten of them have a
// hundred failovers, on servers kept from run to run. An interrupted row resumes with the next ten failovers, on new
// servers.
func rateRows() (out []Row) {
	for _, l := range scenarios.Names() {
		if strings.HasPrefix(l.File, "rates/") {
			out = append(out, Row{ID: l.Name + "@docker", Scenario: l.Name, Provider: "docker", Count: 10})
		}
	}
	return out
}

// fenced reports whether the set of a member rejects the writes of a late holder.
func fenced(id string) bool {
	return strings.HasPrefix(id, familyStory+"-fenced@") || strings.HasPrefix(id, familyStory+"-in-etcd@")
}

// rated reports whether the row belongs to the family.
func (r Row) rated() bool { return strings.HasPrefix(r.Scenario, familyStory) }

// choose returns the rows that the patterns name, all or the quick ones, and sets how often they are run. A pattern
// without a row is an error.
func choose(rows []Row, only string, quick bool, runs int) (out []Row, err error) {
	patterns, used := strings.Split(cmp.Or(only, "*"), ","), map[string]bool{}
	for _, row := range rows {
		named := false
		for _, p := range patterns {
			byID, err := path.Match(p, row.ID)
			if err != nil {
				return nil, fmt.Errorf("-only %s: %w", p, err)
			}
			if byScenario, _ := path.Match(p, row.Scenario); byID || byScenario {
				named, used[p] = true, true
			}
		}
		if quick {
			row.Count = 1
		}
		row.Count = cmp.Or(runs, row.Count)
		if named && (row.Quick || !quick) {
			out = append(out, row)
		}
	}
	for _, p := range patterns {
		if !used[p] {
			return nil, fmt.Errorf("-only %s: no row matches; -list prints them", p)
		}
	}
	return out, nil
}

// optional reports whether some machines cannot run the row: their kernel lacks the fault, or a server is not
// installed.
func (r Row) optional() bool { return r.Text != "" || r.Provider == "local" }
