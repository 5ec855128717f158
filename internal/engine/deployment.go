package engine

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

// deployment is the nodes of a run, and the service that its servers are.
type deployment struct {
	plan    *plan.Plan
	record  *rundir.Dir
	cluster *cluster.Cluster // nil until the nodes are made
	service topology.Service // nil until the servers are started
	agent   bool             // it was asked for when the nodes were made
	partly  string           // what of the attached service was looked at before the run; "": all
	several []topology.Met   // attached endpoints with more than one server behind them
	left    node.Role        // nodes of this role are left to somebody else to start; "": none are
	// a topology.Guest in an attached service, which it leaves in the end; nil: the servers are ours
	guest topology.Service
}

// open makes all nodes and starts them.
func (d *deployment) open(ctx context.Context, o Options, id string) error {
	d.agent = d.plan.NeedsAgent() || o.Kept != nil && o.Kept.Agent
	err := d.record.Timing(results.TimeOpen, func() (err error) {
		d.cluster, err = o.Provider.Open(ctx, cluster.Request{
			Run: id, Specs: d.plan.OwnSpecs(), Images: o.Images, Agent: d.agent, Hosts: d.plan.Scenario.Hosts,
			Needs:  d.plan.Needs,
			LogDir: d.record.LogDir(), Keep: o.Keep, Reuse: o.Kept != nil, Log: d.record.Log,
		})
		return err
	})
	if err != nil {
		return err
	}
	started := slices.DeleteFunc(slices.Clone(d.cluster.Nodes),
		func(n *cluster.Node) bool { return n.Role() == d.left })
	if err := d.record.Timing(results.TimeStart, func() error { return cluster.StartAll(ctx, started) }); err != nil {
		return err
	}
	d.cluster.Join(d.plan.Outside)
	d.connect()
	return nil
}

// hostOf names the host that a node is on; "" where there is one machine.
func (d *deployment) hostOf(name string) string { return d.cluster.Describe[history.HostOf+name] }

// named is a node's name, with its host where there are several.
func (d *deployment) named(n *cluster.Node) string {
	if host := d.hostOf(n.Name()); host != "" {
		return n.Name() + " on host " + host
	}
	return n.Name()
}

// connect makes the handle of the service.
func (d *deployment) connect() {
	d.service = d.plan.Topology.Service(cluster.Handles(d.cluster.ByRole(node.Server)))
}

// awaitReady asks until the service serves a real write.
func (d *deployment) awaitReady(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := d.service.Ready(ctx)
		if err == nil {
			return nil
		}
		if dead := d.deadServer(); dead != nil {
			how := "is not running"
			if dead.Process.Ended() == "" {
				how = "is out of sight"
			}
			return fmt.Errorf("%s %s; see %s", dead.Name(), how,
				filepath.Join(d.record.Path, results.DirLogs, dead.Name()+".log"))
		}
		if clock.Sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s does not serve after %v: %w", d.plan.Backend.Name, limit, err)
		}
	}
}

func (d *deployment) deadServer() *cluster.Node {
	for _, n := range d.cluster.ByRole(node.Server) {
		if !n.Process.Running() {
			return n
		}
	}
	return nil
}

// awaitRecovery waits until the service serves again, as a whole and each of its servers.
func (d *deployment) awaitRecovery(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := d.awaitReady(ctx, limit); err != nil {
		return fmt.Errorf("the service did not recover: %w", err)
	}
	for _, n := range d.cluster.ByRole(node.Server) {
		if err := chaos.Serves(ctx, d.service, n.Name()); err != nil {
			return fmt.Errorf("%s did not recover: %w", n.Name(), err)
		}
	}
	return nil
}

// view is the run's nodes as they are now, with a source of random numbers by that name.
func (d *deployment) view(random string) chaos.View {
	v := chaos.View{Service: d.service, Random: seed.Rand(d.plan.Scenario.Run.Seed, random)}
	for _, n := range d.cluster.Nodes {
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

// close asks the service to describe itself a last time, and closes its handle.
func (d *deployment) close(ctx context.Context) error {
	if d.service == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	d.explain(ctx, true)
	said := d.service.Describe(ctx)
	cancel()
	d.record.Change(func(e *results.Env) { e.Service = said })
	return d.service.Close()
}
