package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockquake/lockquake/scenarios"
)

// outline is a Plan as --dry-run prints it. Everything in it can be delivered: a plan that cannot be is an error.
type outline struct {
	Scenario string        `json:"scenario"`
	Claim    string        `json:"claim"`
	Seed     uint64        `json:"seed"`
	Backend  string        `json:"backend"`
	Lock     string        `json:"lock"`
	TTL      string        `json:"ttl"`
	Workload string        `json:"workload,omitempty"`
	Users    int           `json:"users"`
	Resource string        `json:"resource,omitempty"`
	Guard    string        `json:"guard,omitempty"`
	Nodes    []outlineNode `json:"nodes"`
	For      string        `json:"for,omitempty"`
	Schedule []outlineItem `json:"schedule,omitempty"`
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
	At    string   `json:"at"`
	For   string   `json:"for,omitempty"`
	Fault string   `json:"fault"`
	On    string   `json:"on"`
	Needs []string `json:"needs,omitempty"`
}

func (p *Plan) outline() outline {
	sc := p.scenario
	o := outline{
		Scenario: sc.Name, Claim: sc.Claim, Seed: sc.Run.Seed, Backend: p.backend.Name, Lock: p.lock.Name, TTL: sc.Backend.TTL.String(),
		Workload: sc.Workload.Use, Users: len(p.people),
	}
	if p.workload != nil {
		o.For = sc.Run.For.String()
		o.Users += sc.Workload.Clients * sc.Workload.Users
	}
	if p.resource != nil {
		o.Resource, o.Guard = p.resource.Name, sc.Workload.Resource.Guard
	}
	for _, s := range p.specs {
		o.Nodes = append(o.Nodes, outlineNode{Name: s.Name, Role: string(s.Role), CPUs: s.Limits.CPUs, Memory: s.Limits.Memory})
	}
	for _, x := range p.schedule {
		inj := p.injections[x.Entry]
		item := outlineItem{At: x.At.Round(time.Millisecond).String(), Fault: inj.kind.Name, On: inj.on}
		if x.For > 0 {
			item.For = x.For.String()
		}
		for _, c := range inj.needs() {
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
	return o
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
		fmt.Fprintf(w, "workload\t%s, %d users, for %s\n", o.Workload, o.Users, o.For)
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
	for _, e := range o.Expect {
		fmt.Fprintf(w, "expect\t%s\n", e)
	}
	_ = w.Flush() // a strings.Builder takes everything
	for _, x := range o.Schedule {
		lasts := ""
		if x.For != "" {
			lasts = " for " + x.For
		}
		fmt.Fprintf(&b, "\nat %s: %s on %s%s%s", x.At, x.Fault, x.On, lasts, deliverable)
	}
	for i, s := range o.Steps {
		fmt.Fprintf(&b, "\nstep %d: %s", i+1, s)
		if _, injects := p.stepFaults[i]; injects {
			b.WriteString(deliverable)
		}
	}
	return b.String() + "\n"
}
