package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// describe returns what is known of a run before it starts.
func describe(o Options, p *plan.Plan, id, dir string) results.Env {
	sc := p.Scenario
	e := results.Env{
		Schema: results.EnvSchema, Run: id, Scenario: sc.Name, Seed: sc.Run.Seed, Version: o.Version,
		Started: o.Started.UTC().Format(time.RFC3339Nano), Replay: fmt.Sprintf("%s --seed %d", o.Replay, sc.Run.Seed),
		Provider: o.Provider.Name(), ProviderReason: o.ProviderReason,
		Libraries: o.Libraries, Program: cmp.Or(p.Programs.String(), o.Program), Host: Host(),
		Timings: map[string]int64{},
		Backend: p.Backend.Name, Lock: p.Lock.Name, TTL: int64(sc.Backend.TTL),
		Token: string(p.Lock.Offers.Token), Expires: p.Lock.Offers.Expires, Tells: p.Lock.Offers.LossSignal,
		NoLock:   p.Lock.Absent,
		Workload: sc.Workload.Use, Increments: p.Kind.Increments || p.Workload == nil && increments(sc.Steps),
		Directed: p.Workload == nil,
		Users:    sc.Workload.Users*sc.Workload.Clients + len(p.StepUsers),
	}
	e.Fair, e.Permits, e.Terse = p.Lock.Offers.Fair, p.Rules().Permits, p.Backend.Terse
	if p.Backend.Majority != backends.NoMajority {
		e.Majority = &results.Majority{
			Servers: p.Specs.Of(node.Server), Apart: p.Backend.Majority == backends.ByClients,
		}
	}
	for _, n := range p.Lock.Notes {
		e.Notes = append(e.Notes, results.Note(n))
	}
	e.MustBeZero = o.Catalog.Checkers.MustBeZero()
	e.WallClock = p.Lock.Offers.WallClock
	e.ServerCores = serverCores(p)
	e.Writes, e.Terms = string(p.Kind.Writes), p.Terms()
	if len(p.Schedule) > 0 && o.Drawn != nil {
		e.Drawn = o.Drawn(filepath.Join(dir, results.FileDrawn))
	}
	if p.Workload == nil {
		e.Users = len(p.StepUsers)
	}
	for k, name := range p.StepUsers {
		if e.People == nil {
			e.People = map[string]string{}
		}
		e.People[name] = p.StepUserNode(k)
	}
	if params, err := json.Marshal(p.Topology.Params()); err == nil { // else no client starts
		e.Recovery = int64(p.Lock.Bound(sc.Backend.TTL, params))
	}
	if p.Resource != nil {
		e.Resource, e.Guard = p.Resource.Name, sc.Workload.Resource.Guard
		if p.Resource.Replicated {
			e.Replicas = p.Specs.Of(node.Resource)
		}
		e.ResourceNodes = p.Specs.Of(node.Resource)
	}
	e.Host["load_before"] = LoadAverage()
	return e
}

// serverCores returns how many cores of the machine one server can use at most; 0 is unlimited.
func serverCores(p *plan.Plan) float64 {
	most := p.Scenario.Backend.Limits.CPUs
	if p.Backend.OneThread && (most == 0 || most > 1) {
		return 1
	}
	return most
}
