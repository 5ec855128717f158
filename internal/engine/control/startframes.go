package control

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

// StartFrames makes the start frames of a run's processes.
type StartFrames struct {
	Plan    *plan.Plan
	Nodes   *deployment.Nodes
	Run     string // the run's id
	Records bool   // the grants are recorded, not only counted
}

// Of returns the start frame of the client with that index, or of a node of the resource for -1.
func (f StartFrames) Of(n *cluster.Node, index int) (*wire.Start, error) {
	sc := f.Plan.Scenario
	st := &wire.Start{
		Name: n.Name(), Index: index, Format: wire.FormatRecords, Seed: seed.Split(sc.Run.Seed, n.Name()),
		Locks: f.Plan.Locks, Timeout: int64(sc.Workload.Timeout), TTL: int64(sc.Backend.TTL), Record: f.Records,
	}
	if res := f.Plan.Resource; res != nil {
		st.Resource = &wire.Resource{
			Use: res.Name, Guard: sc.Workload.Resource.Guard, Address: f.resourceAddress(),
			Password: f.resourcePassword(),
		}
	}
	if index < 0 {
		st.Guard, st.Terms = sc.Workload.Resource.Guard, f.Plan.Terms()
		// it is a client of the service too; its index comes after all others
		if f.Plan.Guard.Sequencer || f.Plan.Resource.Within != "" {
			return st, f.access(st, f.Plan.StepUserIndex(len(f.Plan.StepUsers)))
		}
		return st, nil
	}
	st.Renew, st.Check = sc.Workload.Renew || f.Plan.Renews, sc.Workload.Check
	st.Margin, st.OwnClock = int64(sc.Workload.Margin), f.Plan.StopsClocks()
	if err := f.access(st, index); err != nil {
		return nil, err
	}
	if f.Plan.Workload != nil && index < sc.Workload.Clients {
		params, err := json.Marshal(f.Plan.Workload)
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

// speaks reports whether a node of the resource has a control stream.
func speaks(of *resource.Kind, name string) bool {
	return slices.ContainsFunc(of.Specs(), func(s node.Spec) bool { return s.Name == name && s.Stdio })
}

// resourceAddress returns where users reach the resource: the first port of each of its nodes, separated by commas. A
// resource within the lock service is reached at the servers.
func (f StartFrames) resourceAddress() string {
	var list []string
	specs := f.Plan.Resource.Specs()
	if f.Plan.Resource.Within != "" {
		specs = f.Plan.Topology.Specs()
	}
	for _, spec := range specs {
		if len(spec.Ports) > 0 {
			list = append(list, f.Nodes.Cluster.Node(spec.Name).Address(spec.Ports[0].Name))
		}
	}
	return strings.Join(list, ",")
}

// resourcePassword returns the password that the resource asks for; "" if it asks for none.
func (f StartFrames) resourcePassword() string {
	for _, n := range f.Nodes.Cluster.ByRole(node.Resource) {
		if p := n.Login().Password; p != "" {
			return p
		}
	}
	return ""
}

// access sets in a start frame how a node reaches the service, as the client with that number.
func (f StartFrames) access(st *wire.Start, client int) error {
	access, err := listed.Reach(backends.Access{
		Backend: f.Plan.Backend.Name, Lock: f.Plan.Lock.Name, TTL: f.Plan.Scenario.Backend.TTL, Run: f.Run,
		Client: client, Prefix: f.Plan.Prefix, Permits: f.Plan.Rules().Permits,
	}, f.Plan.Topology, cluster.Handles(f.Nodes.Cluster.ByRole(node.Server)))
	if err != nil {
		return err
	}
	if st.Access, err = json.Marshal(access); err != nil {
		return fmt.Errorf("access to %s: %w", f.Plan.Backend.Name, err)
	}
	return nil
}
