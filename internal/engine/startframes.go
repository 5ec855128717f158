package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads/resource"
)

// startFrames makes the frame that tells a process what to be in a run.
type startFrames struct {
	plan   *plan.Plan
	nodes  *deployment.Nodes
	id     string // of the run
	record bool   // the grants are recorded, not counted only
}

func (f startFrames) of(s *process) (*wire.Start, error) {
	sc := f.plan.Scenario
	st := &wire.Start{
		Name: s.node.Name(), Index: s.index, Format: wire.FormatRecords, Seed: seed.Split(sc.Run.Seed, s.node.Name()),
		Locks: f.plan.Locks, Timeout: int64(sc.Workload.Timeout), TTL: int64(sc.Backend.TTL), Record: f.record,
	}
	if res := f.plan.Resource; res != nil {
		st.Resource = &wire.Resource{
			Use: res.Name, Guard: sc.Workload.Resource.Guard, Address: f.resourceAddress(),
			Password: f.resourcePassword(),
		}
	}
	if s.index < 0 {
		st.Guard, st.Terms = sc.Workload.Resource.Guard, f.plan.Terms()
		// it is a client of the service too, one behind all others
		if f.plan.Guard.Sequencer || f.plan.Resource.Within != "" {
			return st, f.access(st, f.plan.StepUserIndex(len(f.plan.StepUsers)))
		}
		return st, nil
	}
	st.Renew, st.Check = sc.Workload.Renew || f.plan.Renews, sc.Workload.Check
	st.Margin = int64(sc.Workload.Margin)
	if err := f.access(st, s.index); err != nil {
		return nil, err
	}
	if f.plan.Workload != nil && s.index < sc.Workload.Clients {
		params, err := json.Marshal(f.plan.Workload)
		if err != nil {
			return nil, fmt.Errorf("parameters of workload %s: %w", sc.Workload.Use, err)
		}
		st.Workload = &wire.Workload{
			Use: sc.Workload.Use, Users: sc.Workload.Users,
			Total: sc.Workload.Users * sc.Workload.Clients, Params: params,
		}
	}
	return st, nil
}

// speaks tells whether a node of the resource has a control stream.
func speaks(of *resource.Kind, name string) bool {
	return slices.ContainsFunc(of.Specs(), func(s node.Spec) bool { return s.Name == name && s.Stdio })
}

// resourceAddress is where users reach the resource: the first port of each of its nodes, with commas between. A
// resource within the lock service is reached at the servers.
func (f startFrames) resourceAddress() string {
	var list []string
	specs := f.plan.Resource.Specs()
	if f.plan.Resource.Within != "" {
		specs = f.plan.Topology.Specs()
	}
	for _, spec := range specs {
		if len(spec.Ports) > 0 {
			list = append(list, f.nodes.Cluster.Node(spec.Name).Address(spec.Ports[0].Name))
		}
	}
	return strings.Join(list, ",")
}

// resourcePassword is what the resource asks of its users; "" where it asks nothing.
func (f startFrames) resourcePassword() string {
	for _, n := range f.nodes.Cluster.ByRole(node.Resource) {
		if p := n.Login().Password; p != "" {
			return p
		}
	}
	return ""
}

// access tells a node how to reach the service, as the client of that number.
func (f startFrames) access(st *wire.Start, client int) error {
	access, err := listed.Reach(backends.Access{
		Backend: f.plan.Backend.Name, Lock: f.plan.Lock.Name, TTL: f.plan.Scenario.Backend.TTL, Run: f.id,
		Client: client, Prefix: f.plan.Prefix,
	}, f.plan.Topology, cluster.Handles(f.nodes.Cluster.ByRole(node.Server)))
	if err != nil {
		return err
	}
	if st.Access, err = json.Marshal(access); err != nil {
		return fmt.Errorf("access to %s: %w", f.plan.Backend.Name, err)
	}
	return nil
}
