package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// readings asks the servers, the clients and the resource of a run for their counters and contents.
type readings struct {
	plan      *plan.Plan
	nodes     *deployment.Nodes
	processes *control.Processes
	counters  deployment.Counters
	record    *rundir.Dir
	own       *rundir.Journal
}

// take reads the servers' request counters, the clients' wake-ups, and the processor time of each node. It is called
// before the workload begins and before it is stopped. At the stop every waiter leaves its queue, which costs as much
// as many handoffs do. A run of steps alone has no reading: the engine's own questions would be most of it.
func (r readings) take(ctx context.Context) {
	if r.plan.Workload == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deployment.ReadingTimeout)
	defer cancel()
	began, machine := clock.Now(), machineCPU()
	var counted results.Reading
	var syncs map[string]results.Syncs
	woken, used := map[string]int64{}, map[string]int64{history.Engine: wire.CPU()}
	var mu sync.Mutex
	var group sync.WaitGroup
	group.Go(func() { counted = r.counters.Read(ctx) })
	if c, ok := r.nodes.Service.(topology.SyncTimer); ok {
		group.Go(func() { syncs = syncsOf(c.Syncs(ctx)) })
	}
	for _, n := range r.nodes.Cluster.Nodes {
		group.Go(func() {
			if ns, err := n.Process.CPU(ctx); err == nil {
				mu.Lock()
				defer mu.Unlock()
				used[n.Name()] = int64(ns)
			}
		})
	}
	for _, s := range r.processes.Clients() {
		group.Go(func() {
			res, err := s.Ask(ctx, wire.Command{Do: wire.DoNotifications})
			if err == nil && res.Outcome == wire.OutcomeOK {
				mu.Lock()
				defer mu.Unlock()
				woken[s.Node.Name()] = res.Count
			}
		})
	}
	group.Wait()
	counted.Time, counted.Machine, counted.Notifications, counted.CPU, counted.Syncs = (began+clock.Now())/2,
		(machine+machineCPU())/2, woken, used, syncs
	r.record.Change(func(e *results.Env) { e.Readings = append(e.Readings, counted) })
}

// beforeEnd is how long before the end of a part its footprint is taken: at the end of the load the clients leave.
const beforeEnd = 50 * time.Millisecond

// thirds is the number of parts of the load; the clients are measured at the end of each.
const thirds = 3

// footprints measures what the clients use of the machine as the load begins, and after each third of it.
func (r readings) footprints(ctx context.Context, start int64) {
	var seen []results.Footprints
	for i := range int64(thirds + 1) {
		if sleepUntil(ctx, start+i*int64(r.plan.Load())/thirds-int64(beforeEnd)) != nil {
			return
		}
		at := results.Footprints{Time: clock.Now(), Of: map[string]results.Footprint{}}
		for _, n := range r.nodes.Cluster.ByRole(node.Client) {
			f, err := n.Process.Footprint(ctx)
			if err != nil {
				return
			}
			at.Of[n.Name()] = results.Footprint{
				Memory: f.Memory, Descriptors: int64(f.Descriptors), Threads: int64(f.Threads),
			}
		}
		seen = append(seen, at)
	}
	r.record.Change(func(e *results.Env) { e.Footprints = seen })
}

// syncsOf converts the servers' disk counters for env.json.
func syncsOf(said map[string]topology.Syncs) map[string]results.Syncs {
	out := map[string]results.Syncs{}
	for name, s := range said {
		out[name] = results.Syncs{N: s.N, NS: int64(s.Took)}
	}
	return out
}

// finalRead asks the resource for the value of every lock and writes it into the history.
func (r readings) finalRead(ctx context.Context) error {
	if r.plan.Resource == nil {
		return nil
	}
	for i := range r.plan.Locks {
		res, err := r.finalOf(ctx, i)
		if err != nil {
			return err
		}
		e := history.Event{
			Kind: history.Final, Phase: history.Info, Lock: uint16(i), Value: res.Value,
			Valid: res.Count,
		}
		r.own.Add(e)
	}
	return nil
}

// finalOf reads the value that one lock protects. A majority of the replicas must answer; the latest value among the
// answers counts.
func (r readings) finalOf(ctx context.Context, lock int) (best wire.Result, err error) {
	all, answers := 0, 0
	var errs []error
	for _, s := range r.processes.Resources() {
		all++
		res, err := s.Ask(ctx, wire.Command{Do: wire.DoFinal, Lock: lock})
		if err == nil && res.Outcome != wire.OutcomeOK {
			err = fmt.Errorf("%s of %s: %s", res.Outcome, r.plan.Locks[lock], res.Error)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if answers++; answers == 1 || res.Epoch > best.Epoch || res.Epoch == best.Epoch && res.Number > best.Number {
			best = res
		}
	}
	if answers <= all/2 {
		return best, errors.Join(errs...)
	}
	return best, nil
}
