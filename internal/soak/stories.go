package main

import (
	"strings"

	"github.com/lockquake/lockquake/scenarios"
)

// How often a story is run before its figures are quoted: itself and each of its twins with containers, and both as processes.
const (
	storyRuns = 20
	twinRuns  = 5
	localRuns = 3
)

// storyRows are the stories and their twins, each on both providers.
func storyRows() []Row {
	var docker, local []Row
	for _, l := range scenarios.Names() {
		if !strings.HasPrefix(l.File, "stories/") || l.File == "stories/"+familyStory+".yaml" {
			continue
		}
		found, err := scenarios.Load(l.Name)
		if err != nil || len(found) != 1 { // a test of that package loads them all
			panic(l.Name)
		}
		row := Row{
			Scenario: l.Name, File: l.File, Backend: found[0].Backend.Use, Provider: "docker", Count: storyRuns, Shows: shown(found[0].Expect),
		}
		if l.Path+".yaml" != l.File {
			row.Count = twinRuns
		}
		docker = append(docker, row)
		row.Provider, row.Count, row.Optional = "local", localRuns, true
		local = append(local, row)
	}
	return append(docker, local...)
}

// shown says in words what a scenario expects of its own accord.
func shown(list []scenarios.Expectation) string {
	var out []string
	for _, e := range list {
		if e.Forced {
			continue
		}
		name := strings.ReplaceAll(e.Name, "_", " ")
		switch e.Text {
		case "0", "=0":
			out = append(out, "no "+name)
		case ">0":
			out = append(out, name)
		default:
			out = append(out, name+" "+e.Text)
		}
	}
	return strings.Join(out, ", ")
}
