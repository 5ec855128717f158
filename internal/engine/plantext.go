package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// outline is a Plan as --dry-run prints it. Everything in it can be delivered: a plan that cannot be is an error.
type outline struct {
	Scenario string `json:"scenario"`
	Claim    string `json:"claim"`
	Seed     uint64 `json:"seed"`
	Backend  string `json:"backend"`
	Lock     string `json:"lock"`
	TTL      string `json:"ttl"`
	Workload string `json:"workload,omitempty"`
	Users    int    `json:"users"`
	Locks    int    `json:"locks,omitempty"` // that the workload's users want
	// of the workload: rate, hold and what else it has, with what is not set
	Keys     string        `json:"keys,omitempty"`
	Resource string        `json:"resource,omitempty"`
	Guard    string        `json:"guard,omitempty"`
	Nodes    []outlineNode `json:"nodes"`
	For      string        `json:"for,omitempty"`
	Schedule []outlineItem `json:"schedule,omitempty"`
	Random   string        `json:"random,omitempty"` // what the schedule is drawn from
	Promises string        `json:"promises,omitempty"`
	Steps    []string      `json:"steps,omitempty"`
	Expect   []string      `json:"expect"`
}

type outlineNode struct {
	Name   string  `json:"name"`
	Role   string  `json:"role"`
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory_bytes,omitempty"`
}

type outlineItem struct {
	At     string   `json:"at"`
	For    string   `json:"for,omitempty"`
	Fault  string   `json:"fault"`
	On     string   `json:"on"`               // as it will be asked for: random picks are made
	Chosen string   `json:"chosen,omitempty"` // as the scenario has it, where that is another
	Params string   `json:"params,omitempty"`
	Needs  []string `json:"needs,omitempty"`
}

func (p *Plan) outline() outline {
	sc := p.scenario
	o := outline{
		Scenario: sc.Name, Claim: sc.Claim, Seed: sc.Run.Seed, Backend: p.backend.Name, Lock: p.lock.Name,
		TTL:      sc.Backend.TTL.String(),
		Workload: sc.Workload.Use, Users: len(p.stepUsers),
	}
	if p.workload != nil {
		o.For = sc.Run.For.String()
		o.Users += sc.Workload.Clients * sc.Workload.Users
		o.Locks, o.Keys = len(p.locks), keys(p.workload)
	}
	if p.resource != nil {
		o.Resource, o.Guard = p.resource.Name, sc.Workload.Resource.Guard
	}
	for _, s := range p.specs {
		o.Nodes = append(o.Nodes, outlineNode{
			Name: s.Name, Role: string(s.Role), CPUs: s.Limits.CPUs,
			Memory: s.Limits.Memory,
		})
	}
	o.Random, o.Promises = sc.Random.String(), p.promises()
	for _, x := range p.schedule {
		item := outlineItem{
			At: x.at.Round(time.Millisecond).String(), Fault: x.inj.kind.Name,
			On: x.inj.selector.String(), Params: x.inj.params,
		}
		if x.inj.on != item.On {
			item.Chosen = x.inj.on
		}
		if x.lasts > 0 {
			item.For = x.lasts.String()
		}
		for _, c := range x.inj.needs() {
			item.Needs = append(item.Needs, string(c))
		}
		o.Schedule = append(o.Schedule, item)
	}
	for _, st := range sc.Steps {
		o.Steps = append(o.Steps, describeStep(st))
	}
	for _, e := range sc.Expect {
		o.Expect = append(o.Expect, e.Name+" "+e.Text)
	}
	o.Expect = append(o.Expect, "0 of every other violation (`lockquake list measures`)")
	return o
}

// keys writes the workload's own keys as a scenario would, also those that it leaves at their defaults.
func keys(w workloads.Workload) string {
	b, err := yaml.MarshalWithOptions(w, yaml.Flow(true))
	if err != nil {
		return err.Error()
	}
	return strings.Trim(strings.TrimSpace(string(b)), "{}")
}

// text is what is injected, on whom, and for how long.
func (x outlineItem) text() string {
	out := x.Fault + " on " + x.On
	if x.Chosen != "" {
		out += " (" + x.Chosen + ")"
	}
	if x.For != "" {
		out += " for " + x.For
	}
	if x.Params != "" {
		out += ", " + x.Params
	}
	return out
}

// promises says in words what the schedule's injections leave each other and the service.
func (p *Plan) promises() string {
	var out []string
	switch {
	case p.promise.Serial:
		out = append(out, "no two injections overlap")
	case p.promise.Apart:
		out = append(out, "no two injections overlap on one node")
	}
	if p.promise.Majority {
		out = append(out, "more than half of the servers of each kind are left alone")
	}
	return strings.Join(out, "; ")
}

// MarshalJSON returns the outline of the plan.
func (p *Plan) MarshalJSON() ([]byte, error) { return json.Marshal(p.outline()) }

// deliverable stands behind each injection: a plan with one that is not is an error.
const deliverable = " (can be delivered here)"

// Text returns the outline of the plan for people.
func (p *Plan) Text() string {
	o := p.outline()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %s\n\n", o.Scenario, strings.TrimSpace(o.Claim))
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "backend\t%s, lock %s, TTL %s\n", o.Backend, o.Lock, o.TTL)
	if o.Workload != "" {
		fmt.Fprintf(w, "workload\t%s, %s, %s, for %s\n\t%s\n", o.Workload, figure.Of(o.Users, "user"),
			figure.Of(o.Locks, "lock"), o.For, o.Keys)
	}
	if o.Resource != "" {
		fmt.Fprintf(w, "resource\t%s, guard %s\n", o.Resource, o.Guard)
	}
	var nodes []string
	for _, n := range o.Nodes {
		nodes = append(nodes, n.Name)
	}
	fmt.Fprintf(w, "nodes\t%s\n", strings.Join(nodes, ", "))
	for _, l := range []struct {
		of string
		scenarios.Limits
	}{{"server", p.scenario.Backend.Limits}, {"client", p.scenario.Workload.Limits}} {
		if text := limits(l.Limits).String(); text != "" {
			fmt.Fprintf(w, "limits\t%s, each %s\n", text, l.of)
		}
	}
	if o.Seed == 0 {
		fmt.Fprintf(w, "seed\tdrawn at the start of the run\n")
	} else {
		fmt.Fprintf(w, "seed\t%d\n", o.Seed)
	}
	if o.Random != "" {
		fmt.Fprintf(w, "drawn of\t%s\n", o.Random)
	}
	if o.Random != "" && o.Seed == 0 {
		fmt.Fprintf(w, "schedule\tdrawn at the start of the run; --seed N shows that of a seed\n")
	}
	if o.Promises != "" {
		fmt.Fprintf(w, "promised\t%s\n", o.Promises)
	}
	for _, e := range o.Expect {
		fmt.Fprintf(w, "expect\t%s\n", e)
	}
	_ = w.Flush() // a strings.Builder takes everything
	for _, x := range o.Schedule {
		fmt.Fprintf(&b, "\nat %s: %s%s", x.At, x.text(), deliverable)
	}
	for i, s := range o.Steps {
		fmt.Fprintf(&b, "\nstep %d: %s", i+1, s)
		if _, injects := p.stepFaults[i]; injects {
			b.WriteString(deliverable)
		}
	}
	return b.String() + "\n"
}

// Drawn returns the plan's schedule, with every random pick made, as a plain scenario.
func (p *Plan) Drawn() []byte { return p.drawn(nil) }

// drawn is the schedule as it was drawn, as a plain scenario. The outcome of each injection, by its place in the
// schedule, is a comment behind it.
func (p *Plan) drawn(outcomes map[int]string) []byte {
	var list []scenarios.Plain
	for i, d := range p.schedule {
		x := scenarios.Plain{
			Use: d.inj.kind.Name, On: d.inj.selector.String(), At: d.at, For: d.lasts,
			Params: d.inj.own,
		}
		if x.Note = outcomes[i]; x.Note == "" && d.inj.on != x.On {
			x.Note = d.inj.on
		}
		list = append(list, x)
	}
	head := fmt.Sprintf(`The schedule of %s as seed %d drew it. lockquake run takes this file as it is, or trimmed.
Who is drawn is written down; leader, followers and holder are found anew.`, p.scenario.Name, p.scenario.Run.Seed)
	return p.scenario.Drawn(head, list)
}

// Facts are what a plan says to who sweeps over scenarios.
type Facts struct {
	Lock      backends.Lock      // that the scenario uses
	Locks     int                // how many of it there are
	Servers   int                // members of the service
	Workload  workloads.Workload // what each user does; nil: steps only
	InProcess bool               // the clients are goroutines of this process: they have no links of their own
}

// Facts returns what was found in the catalogue.
func (p *Plan) Facts() Facts {
	return Facts{
		Lock: p.lock, Locks: len(p.locks), Servers: len(p.namesOf(node.Server)), Workload: p.workload,
		InProcess: p.backend.InProcess,
	}
}
