// Package deployment holds the nodes of a run and the service that its servers form. It starts them, waits for them
// and describes them. It enters and leaves an attached service.
package deployment

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results"
)

// Nodes holds the nodes of a run, and the service that its servers form.
type Nodes struct {
	Plan    *plan.Plan
	Dir     *rundir.Dir
	Cluster *cluster.Cluster // nil until the nodes are made
	Service topology.Service // nil until the servers are started
	Agent   bool             // an agent was requested for the nodes
	Partly  string           // the part of the attached service checked before the run; "": all
	several []topology.Met   // attached endpoints with more than one server behind them
	Left    node.Role        // nodes of this role are left for the caller to start; "": none
	// a topology.Guest in an attached service, which it leaves at the end; nil: the servers are ours
	Guest topology.Service
}

// Open makes all nodes and starts them. The request holds what is not in the plan.
func (d *Nodes) Open(ctx context.Context, from cluster.Provider, r cluster.Request) error {
	d.Agent = d.Plan.NeedsAgent() || r.Agent
	r.Specs, r.Hosts, r.Needs, r.Agent = d.Plan.OwnSpecs(), d.Plan.Scenario.Hosts, d.Plan.Needs, d.Agent
	r.LogDir, r.Log = d.Dir.LogDir(), d.Dir.Log
	err := d.Dir.Timing(results.TimeOpen, func() (err error) { d.Cluster, err = from.Open(ctx, r); return err })
	if err != nil {
		return err
	}
	started := slices.DeleteFunc(slices.Clone(d.Cluster.Nodes),
		func(n *cluster.Node) bool { return n.Role() == d.Left })
	if err := d.Dir.Timing(results.TimeStart, func() error { return cluster.StartAll(ctx, started) }); err != nil {
		return err
	}
	d.Cluster.Join(d.Plan.Outside)
	d.Connect()
	return nil
}

// hostOf returns the name of a node's host; "" with a single machine.
func (d *Nodes) hostOf(name string) string { return d.Cluster.Describe[history.HostOf+name] }

// HostsOf returns the names of the nodes' hosts, each once; none with a single machine.
func (d *Nodes) HostsOf(nodes []string) []string {
	var out []string
	for _, n := range nodes {
		if host := d.hostOf(n); host != "" && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

// Named returns a node's name, with its host if there are several.
func (d *Nodes) Named(n *cluster.Node) string {
	if host := d.hostOf(n.Name()); host != "" {
		return n.Name() + " on host " + host
	}
	return n.Name()
}

// Connect creates the handle of the service.
func (d *Nodes) Connect() {
	d.Service = d.Plan.Topology.Service(cluster.Handles(d.Cluster.ByRole(node.Server)))
}

// AwaitReady polls until the service serves a real write.
func (d *Nodes) AwaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := d.Service.Ready(ctx)
		if err == nil {
			return nil
		}
		if dead := d.deadServer(); dead != nil {
			how := "is not running"
			if dead.Process.Ended() == "" {
				how = "is out of sight"
			}
			return fmt.Errorf("%s %s; see %s", dead.Name(), how,
				filepath.Join(d.Dir.Path, results.DirLogs, dead.Name()+".log"))
		}
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s does not serve after %v: %w", d.Plan.Backend.Name, limit, err)
		}
	}
}

func (d *Nodes) deadServer() *cluster.Node {
	for _, n := range d.Cluster.ByRole(node.Server) {
		if !n.Process.Running() {
			return n
		}
	}
	return nil
}

// AwaitRecovery waits until the service serves again, as a whole and on each of its servers.
func (d *Nodes) AwaitRecovery(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := d.AwaitReady(ctx, limit); err != nil {
		return fmt.Errorf("the service did not recover: %w", err)
	}
	for _, n := range d.Cluster.ByRole(node.Server) {
		if err := chaos.Serves(ctx, d.Service, n.Name()); err != nil {
			return fmt.Errorf("%s did not recover: %w", n.Name(), err)
		}
	}
	return nil
}

// View returns the run's nodes as they are now, with a source of random numbers by that name.
func (d *Nodes) View(random string) chaos.View {
	v := chaos.View{Service: d.Service, Random: seed.Rand(d.Plan.Scenario.Run.Seed, random)}
	for _, n := range d.Cluster.Nodes {
		v.All = append(v.All, n)
		switch n.Role() {
		case node.Server:
			v.Servers = append(v.Servers, n)
		case node.Client:
			v.Clients = append(v.Clients, n)
		case node.Resource:
		}
	}
	return v
}

// Close asks the service to describe itself one last time, and closes its handle.
func (d *Nodes) Close(ctx context.Context) error {
	if d.Service == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	d.Explain(ctx, true)
	said := d.Service.Describe(ctx)
	cancel()
	d.Dir.Change(func(e *results.Env) { e.Service = said })
	return d.Service.Close()
}
