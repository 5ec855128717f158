// Package plan reads a scenario and decides what a run of it does: on which nodes, with which lock and workload, and
// when each fault is injected. It checks all that can be checked before anything starts, and starts nothing.
package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Plan is a scenario with every name resolved and every parameter decoded: what a run will do.
type Plan struct {
	Scenario  scenarios.Scenario
	Backend   listed.Backend
	Lock      backends.Lock
	Topology  topology.Topology
	Workload  workloads.Workload // nil: steps only
	Kind      workloads.Kind
	Renews    bool           // the workload renews its grants, whether or not the scenario says so
	Resource  *resource.Kind // nil: nothing is protected
	Guard     resource.Guard
	Programs  Programs // that replace lockquake's own client; nil: none does
	StepUsers []string // the users that steps name, in the order of their clients
	Specs     Nodes
	Locks     []string
	ID        string          // of the run; "" if it is drawn later
	Prefix    string          // of all keys, if the servers are external
	Outside   []*cluster.Node // external servers, in place of those in specs

	Injections []Injection                   // all that the schedule may contain
	Schedule   []Due                         // the injections with their times, in order
	Promise    chaos.Promise                 // of the schedule: what its injections leave each other and the service
	StepFaults map[int]Injection             // by index of the scenario's steps
	Observed   map[int][]string              // the nodes that an observe step asks, by its index
	Needs      map[string][]chaos.Capability // what faults and limits need of a node, by its name
}

// Terms returns the workload's own numbers by which its writes are judged.
func (p *Plan) Terms() map[string]int64 {
	if w, ok := p.Workload.(workloads.Termed); ok {
		return w.Terms()
	}
	return nil
}

// Load returns how long the workload runs.
func (p *Plan) Load() time.Duration {
	if p.Workload == nil {
		return 0
	}
	return p.Scenario.Run.For
}

// Warms reports whether the run has a warm-up.
func (p *Plan) Warms() bool { return p.Workload != nil && p.Scenario.Run.Warmup > 0 }

// Rules are the rules by which grants are judged: the scenario sets them, whatever the clients report.
type Rules struct {
	Exclusive bool // no user asks for shared mode
	Reentrant bool // a step has a user take a lock that it already holds
	Permits   int  // how many users may hold one lock at once; 0 for one
}

// Rules returns the rules of the scenario.
func (p *Plan) Rules() Rules {
	r := Rules{
		Exclusive: sharedAt(p.Workload, p.Scenario.Steps) == "", Reentrant: reentrantAt(p.Scenario.Steps) != "",
	}
	if n := p.Scenario.Backend.Permits; n > 1 {
		r.Permits = n
	}
	return r
}

// sharedAt returns the key of a scenario that asks for shared mode; "" if none does.
func sharedAt(workload workloads.Workload, steps []scenarios.Step) string {
	if w, ok := workload.(workloads.Sharing); ok && w.Shares() {
		return "workload.shared"
	}
	for i, st := range steps {
		if st.Mode == lock.Shared.String() {
			return stepPath(i, "mode")
		}
	}
	return ""
}

// reentrantAt returns the key of a step with a re-entry; "" if there is none.
func reentrantAt(steps []scenarios.Step) string {
	for i, st := range steps {
		if st.Reentrant {
			return stepPath(i, "reentrant")
		}
	}
	return ""
}

// Order returns the order that a client gets for a step.
func Order(st scenarios.Step) string {
	if st.Reentrant {
		return wire.DoReenter
	}
	return st.Do
}

// stepPath returns the place of a key of a step.
func stepPath(i int, key string) string { return fmt.Sprintf("steps.%d.%s", i, key) }

// StepUserNode returns the node name of the k-th user that steps name.
func (p *Plan) StepUserNode(k int) string { return history.ClientName(p.StepUserIndex(k)) }

// StepUserIndex returns the index of the client of the k-th user that steps name.
func (p *Plan) StepUserIndex(k int) int {
	if p.Workload == nil {
		return k
	}
	return p.Scenario.Workload.Clients + k
}

// allInjections lists the injections of the schedule and of the steps.
func (p *Plan) allInjections() []Injection {
	all := slices.Clone(p.Injections)
	for i := range p.Scenario.Steps {
		if inj, ok := p.StepFaults[i]; ok {
			all = append(all, inj)
		}
	}
	return all
}

// NeedsAgent reports whether any fault has to reach a process from outside.
func (p *Plan) NeedsAgent() bool {
	return slices.ContainsFunc(p.allInjections(), func(inj Injection) bool { return len(inj.needs()) > 0 })
}

// StopsClocks reports whether any fault may set the monotonic clock of a client back.
func (p *Plan) StopsClocks() bool {
	return slices.ContainsFunc(p.allInjections(), func(inj Injection) bool { return inj.Kind.StopsClock })
}

// Passage returns what a user does at the point that a step awaits: it waits ("reached") or dies ("died").
func (p *Plan) Passage(number int, st scenarios.Step) string {
	how := history.PointReached
	for _, before := range p.Scenario.Steps[:number-1] {
		if before.Do == wire.DoArm && before.User == st.User && before.Point == st.Point {
			how = AtPoint(before)
		}
	}
	return how
}

// AtPoint returns what a user that a step arms does at the point: it waits ("reached") or dies ("died").
func AtPoint(arm scenarios.Step) string {
	if arm.Action == wire.ActionDie {
		return history.PointDied
	}
	return history.PointReached
}

// ClientSpec returns the node of a client, by its index.
func (p *Plan) ClientSpec(i int) node.Spec {
	s := node.Spec{
		Name: history.ClientName(i), Role: node.Client, Image: node.SelfProgram, Stdio: true,
		Limits:  limits(p.Scenario.Workload.Limits),
		Alike:   p.Scenario.Workload.Alike,
		Command: func(node.Place) []string { return node.Own("client") },
	}
	if c := p.Programs.Of(i); c != nil {
		c.replace(&s)
	}
	return s
}

// OwnSpecs returns the nodes that the run starts itself.
func (p *Plan) OwnSpecs() []node.Spec {
	return slices.DeleteFunc(slices.Clone(p.Specs),
		func(s node.Spec) bool { return len(p.Outside) > 0 && s.Role == node.Server })
}
