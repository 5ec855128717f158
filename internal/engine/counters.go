package engine

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// serverCounters ask the servers what they have counted.
type serverCounters struct {
	nodes  *deployment.Nodes
	record *rundir.Dir
	// attached says that the servers are somebody else's. What they count is what others ask of them, too.
	attached bool
}

// requests is the service as a counter of its requests; nil: it counts none, or others' as well.
func (c serverCounters) requests() topology.RequestCounter {
	if counter, ok := c.nodes.Service.(topology.RequestCounter); ok && !c.attached {
		return counter
	}
	return nil
}

// read asks all servers.
func (c serverCounters) read(ctx context.Context) (r results.Reading) {
	began := clock.Now()
	r.Starts = map[string]int{}
	for _, n := range c.nodes.Cluster.ByRole(node.Server) {
		r.Starts[n.Name()] = n.Process.Starts()
	}
	var group sync.WaitGroup
	if counter := c.requests(); counter != nil {
		group.Go(func() { r.Requests = counter.Requests(ctx) })
	}
	if counter, ok := c.nodes.Service.(topology.ConnectionCounter); ok && !c.attached {
		group.Go(func() { r.Connections = counter.Connections(ctx) })
	}
	group.Wait()
	r.Time = (began + clock.Now()) / 2
	return r
}

// readBeforeKill asks the servers just before one of them is killed: the next process counts from zero. What a server
// that is stopped does not answer in time is not waited for, and what depends on it is not judged.
func (c serverCounters) readBeforeKill(ctx context.Context) {
	const patience = 200 * time.Millisecond
	begun := false
	c.record.Change(func(e *results.Env) { begun = len(e.Readings) > 0 })
	if !begun { // nothing is measured yet
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := c.read(ctx)
	c.record.Change(func(e *results.Env) { e.Readings = append(e.Readings, r) })
}

// The times for what is left when all clients have ended: endsWithin is how long after its TTL a service may take to
// end a grant, such as two ticks of a ZooKeeper; longestTTL is the longest TTL that is waited for.
const (
	endsWithin = 5 * time.Second
	longestTTL = 20 * time.Second
)

// contentsReader asks the service what it keeps: before the load, at its end, and when all clients have ended.
type contentsReader struct {
	plan     *plan.Plan
	nodes    *deployment.Nodes
	record   *rundir.Dir
	attached bool // others use the servers, too
}

// read asks the service; nil: it does not count what it keeps, or it did not answer, and what depends on it is not
// judged.
func (r contentsReader) read(ctx context.Context) map[string]results.Content {
	counter, ok := r.nodes.Service.(topology.ContentCounter)
	if !ok || r.attached || r.plan.Workload == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readingTimeout)
	defer cancel()
	said, err := counter.Contents(ctx)
	if err != nil {
		return nil
	}
	out := map[string]results.Content{}
	for kind, c := range said {
		out[kind] = results.Content(c)
	}
	return out
}

// before counts what is there before the load.
func (r contentsReader) before(ctx context.Context) {
	if c := r.read(ctx); c != nil {
		r.record.Change(func(e *results.Env) { e.Contents = &results.Contents{Before: c} })
	}
}

// loaded counts what is there while the clients are.
func (r contentsReader) loaded(ctx context.Context) {
	c := r.read(ctx)
	r.record.Change(func(e *results.Env) {
		if e.Contents != nil {
			e.Contents.Loaded = c
		}
	})
}

// after counts what is there when all clients have ended. Grants that nobody gave back end with their TTL: where there
// is more than users and lock names explain, it waits for that.
func (r contentsReader) after(ctx context.Context) {
	var now results.Contents
	var users int
	r.record.Change(func(e *results.Env) {
		if users = e.Users; e.Contents != nil {
			now = *e.Contents
		}
	})
	ttl := r.plan.Scenario.Backend.TTL
	for until := clock.Now() + int64(ttl+endsWithin); now.Before != nil; {
		over := clock.Now() > until
		now.After = r.read(ctx)
		if now.After != nil && (over && ttl <= longestTTL || len(now.Left(users, len(r.plan.Locks), 0)) == 0) {
			r.record.Change(func(e *results.Env) { e.Contents.After = now.After })
			return
		}
		if over || ttl > longestTTL || clock.Sleep(ctx, 200*time.Millisecond) != nil {
			return // what it keeps may still end by itself
		}
	}
}
