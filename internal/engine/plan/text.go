package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// outline is a Plan as --dry-run prints it. Everything in it can be delivered; otherwise planning fails.
type outline struct {
	Scenario string `json:"scenario"`
	Claim    string `json:"claim"`
	Seed     uint64 `json:"seed"`
	Backend  string `json:"backend"`
	Lock     string `json:"lock"`
	TTL      string `json:"ttl"`
	Workload string `json:"workload,omitempty"`
	Users    int    `json:"users"`
	Locks    int    `json:"locks,omitempty"` // wanted by the workload's users
	// of the workload: rate, hold and its other keys, including those that are not set
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
	On     string   `json:"on"`               // as it will be resolved: random picks are made
	Chosen string   `json:"chosen,omitempty"` // as the scenario names it, if different
	Params string   `json:"params,omitempty"`
	Needs  []string `json:"needs,omitempty"`
}

func (p *Plan) outline() outline {
	sc := p.Scenario
	o := outline{
		Scenario: sc.Name, Claim: sc.Claim, Seed: sc.Run.Seed, Backend: p.Backend.Name, Lock: p.Lock.Name,
		TTL:      sc.Backend.TTL.String(),
		Workload: sc.Workload.Use, Users: len(p.StepUsers),
	}
	if p.Workload != nil {
		o.For = sc.Run.For.String()
		o.Users += sc.Workload.Clients * sc.Workload.Users
		o.Locks, o.Keys = len(p.Locks), keys(p.Workload)
	}
	if p.Resource != nil {
		o.Resource, o.Guard = p.Resource.Name, sc.Workload.Resource.Guard
	}
	for _, s := range p.Specs {
		o.Nodes = append(o.Nodes, outlineNode{
			Name: s.Name, Role: string(s.Role), CPUs: s.Limits.CPUs,
			Memory: s.Limits.Memory,
		})
	}
	o.Random, o.Promises = sc.Random.String(), p.promises()
	for _, x := range p.Schedule {
		item := outlineItem{
			At: x.At.Round(time.Millisecond).String(), Fault: x.Inj.Kind.Name,
			On: x.Inj.Selector.String(), Params: x.Inj.Params,
		}
		if x.Inj.On != item.On {
			item.Chosen = x.Inj.On
		}
		if x.Lasts > 0 {
			item.For = x.Lasts.String()
		}
		for _, c := range x.Inj.needs() {
			item.Needs = append(item.Needs, string(c))
		}
		o.Schedule = append(o.Schedule, item)
	}
	for _, st := range sc.Steps {
		o.Steps = append(o.Steps, DescribeStep(st))
	}
	for _, e := range sc.Expect {
		o.Expect = append(o.Expect, e.Name+" "+e.Text)
	}
	o.Expect = append(o.Expect, "0 of every other violation (`lockquake list measures`)")
	return o
}

// DescribeStep describes in a few words what a step does.
func DescribeStep(st scenarios.Step) string {
	switch {
	case st.Do != "":
		return st.User + " " + st.Do
	case st.Inject != "":
		text := "inject " + st.Inject + " on " + st.On
		if st.As != "" {
			text += " as " + st.As
		}
		return text
	case st.Heal != "":
		return "heal " + st.Heal
	case st.Observe != "":
		return "observe " + st.Observe + " on " + st.On
	default:
		return strings.TrimSpace("await " + st.Await + " " + st.Event + st.Fact + " " + st.User + st.Node)
	}
}

// keys formats the workload's own keys as a scenario would, including those left at their defaults.
func keys(w workloads.Workload) string {
	b, err := yaml.MarshalWithOptions(w, yaml.Flow(true))
	if err != nil {
		return err.Error()
	}
	return strings.Trim(strings.TrimSpace(string(b)), "{}")
}

// text returns the fault, its target and its duration.
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

// promises describes in words what the schedule's injections leave each other and the service.
func (p *Plan) promises() string {
	var out []string
	switch {
	case p.Promise.Serial:
		out = append(out, "no two injections overlap")
	case p.Promise.Apart:
		out = append(out, "no two injections overlap on one node")
	}
	if p.Promise.Majority {
		out = append(out, "more than half of the servers of each kind stay untouched")
	}
	return strings.Join(out, "; ")
}

// MarshalJSON returns the outline of the plan.
func (p *Plan) MarshalJSON() ([]byte, error) { return json.Marshal(p.outline()) }

// deliverable follows each injection: a plan with one that cannot be delivered is an error.
const deliverable = " (available here)"

// Text returns the outline of the plan for people.
func (p *Plan) Text() string {
	o := p.outline()
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %s\n\n%s", o.Scenario, strings.TrimSpace(o.Claim), o.table(p).Text())
	for _, x := range o.Schedule {
		fmt.Fprintf(&b, "\nat %s: %s%s", x.At, x.text(), deliverable)
	}
	for i, s := range o.Steps {
		fmt.Fprintf(&b, "\nstep %d: %s", i+1, s)
		if _, injects := p.StepFaults[i]; injects {
			b.WriteString(deliverable)
		}
	}
	return b.String() + "\n"
}

// table is the outline but for what happens when.
func (o outline) table(p *Plan) figure.Table {
	t := figure.Table{{"backend", fmt.Sprintf("%s, lock %s, TTL %s", o.Backend, o.Lock, o.TTL)}}
	add := func(what, format string, args ...any) { t = append(t, []string{what, fmt.Sprintf(format, args...)}) }
	if o.Workload != "" {
		add("workload", "%s, %s, %s, for %s", o.Workload, figure.Of(o.Users, "user"), figure.Of(o.Locks, "lock"), o.For)
		add("", "%s", o.Keys)
	}
	if o.Resource != "" {
		add("resource", "%s, guard %s", o.Resource, o.Guard)
	}
	add("nodes", "%s", strings.Join(p.Specs.Names(), ", "))
	for _, l := range []struct {
		of string
		scenarios.Limits
	}{{"server", p.Scenario.Backend.Limits}, {"client", p.Scenario.Workload.Limits}} {
		if text := limits(l.Limits).String(); text != "" {
			add("limits", "%s, each %s", text, l.of)
		}
	}
	if o.Seed == 0 {
		add("seed", "drawn at the start of the run")
	} else {
		add("seed", "%d", o.Seed)
	}
	if o.Random != "" {
		add("drawn of", "%s", o.Random)
	}
	if o.Random != "" && o.Seed == 0 {
		add("schedule", "drawn at the start of the run; --seed N shows the one of a seed")
	}
	if o.Promises != "" {
		add("promised", "%s", o.Promises)
	}
	for _, e := range o.Expect {
		add("expect", "%s", e)
	}
	return t
}

// Drawn returns the schedule, with every random pick made, as a plain scenario. The outcome of each injection, by its
// place in the schedule, is a comment after it.
func (p *Plan) Drawn(outcomes map[int]string) []byte {
	var list []scenarios.Plain
	for i, d := range p.Schedule {
		x := scenarios.Plain{
			Use: d.Inj.Kind.Name, On: d.Inj.Selector.String(), At: d.At, For: d.Lasts,
			Params: d.Inj.own,
		}
		if x.Note = outcomes[i]; x.Note == "" && d.Inj.On != x.On {
			x.Note = d.Inj.On
		}
		list = append(list, x)
	}
	head := fmt.Sprintf(`The schedule of %s, drawn with seed %d. lockquake run takes this file as it is, or trimmed.
Drawn targets are fixed; leader, followers and holder are resolved again.`, p.Scenario.Name, p.Scenario.Run.Seed)
	return p.Scenario.Drawn(head, list)
}

// Facts are what a plan tells a caller that sweeps over scenarios.
type Facts struct {
	Lock      backends.Lock      // of the scenario
	Locks     int                // the number of such locks
	Servers   int                // members of the service
	Workload  workloads.Workload // what each user does; nil: steps only
	InProcess bool               // the clients are goroutines of this process: they have no links of their own
}

// Facts returns what was found in the catalogue.
func (p *Plan) Facts() Facts {
	return Facts{
		Lock: p.Lock, Locks: len(p.Locks), Servers: len(p.Specs.Of(node.Server)), Workload: p.Workload,
		InProcess: p.Backend.InProcess,
	}
}
