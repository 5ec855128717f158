package deployment

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// ReadingTimeout bounds a reading. A node that does not answer in time is left out, and figures that need it are not
// judged.
const ReadingTimeout = 2 * time.Second

// Counters reads the servers' own counters.
type Counters struct {
	Nodes *Nodes
	// Attached says that the servers are external: their counters include the requests of others.
	Attached bool
}

// Requests returns the service as a counter of its requests; nil if it counts none, or others' as well.
func (c Counters) Requests() topology.RequestCounter {
	if counter, ok := c.Nodes.Service.(topology.RequestCounter); ok && !c.Attached {
		return counter
	}
	return nil
}

// Read reads the counters of all servers.
func (c Counters) Read(ctx context.Context) (r results.Reading) {
	began := clock.Now()
	r.Starts = map[string]int{}
	for _, n := range c.Nodes.Cluster.ByRole(node.Server) {
		r.Starts[n.Name()] = n.Process.Starts()
	}
	var group sync.WaitGroup
	if counter := c.Requests(); counter != nil {
		group.Go(func() { r.Requests = counter.Requests(ctx) })
	}
	if counter, ok := c.Nodes.Service.(topology.ConnectionCounter); ok && !c.Attached {
		group.Go(func() { r.Connections = counter.Connections(ctx) })
	}
	group.Wait()
	r.Time = (began + clock.Now()) / 2
	return r
}

// ReadBeforeKill reads the servers just before one of them is killed: the next process counts from zero. A stopped
// server that does not answer in time is not waited for, and figures that need it are not judged.
func (c Counters) ReadBeforeKill(ctx context.Context) {
	const patience = 200 * time.Millisecond
	begun := false
	c.Nodes.Dir.Change(func(e *results.Env) { begun = len(e.Readings) > 0 })
	if !begun { // nothing is measured yet
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := c.Read(ctx)
	c.Nodes.Dir.Change(func(e *results.Env) { e.Readings = append(e.Readings, r) })
}

// The times for what is left when all clients have ended:
//   - endsWithin is how long after its TTL a service may take to end a grant, such as two ticks of a ZooKeeper;
//   - longestTTL is the longest TTL that is waited for.
const (
	endsWithin = 5 * time.Second
	longestTTL = 20 * time.Second
)

// Contents asks the service what it stores: before the load, at its end, and when all clients have ended.
type Contents struct {
	Nodes    *Nodes
	Attached bool // others use the servers, too
}

// read asks the service. It returns nil if the service does not count what it stores, or did not answer; figures that
// need it are not judged then.
func (r Contents) read(ctx context.Context) map[string]results.Content {
	counter, ok := r.Nodes.Service.(topology.ContentCounter)
	if !ok || r.Attached || r.Nodes.Plan.Workload == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ReadingTimeout)
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

// Before counts the contents before the load.
func (r Contents) Before(ctx context.Context) {
	if c := r.read(ctx); c != nil {
		r.Nodes.Dir.Change(func(e *results.Env) { e.Contents = &results.Contents{Before: c} })
	}
}

// Loaded counts the contents while the clients are up.
func (r Contents) Loaded(ctx context.Context) {
	c := r.read(ctx)
	r.Nodes.Dir.Change(func(e *results.Env) {
		if e.Contents != nil {
			e.Contents.Loaded = c
		}
	})
}

// After counts the contents when all clients have ended. Grants that were not released end with their TTL: if there
// is more than users and lock names explain, After waits for that.
func (r Contents) After(ctx context.Context) {
	var now results.Contents
	var users int
	r.Nodes.Dir.Change(func(e *results.Env) {
		if users = e.Users; e.Contents != nil {
			now = *e.Contents
		}
	})
	ttl := r.Nodes.Plan.Scenario.Backend.TTL
	for until := clock.Now() + int64(ttl+endsWithin); now.Before != nil; {
		over := clock.Now() > until
		now.After = r.read(ctx)
		if now.After != nil && (over && ttl <= longestTTL || len(now.Left(users, len(r.Nodes.Plan.Locks), 0)) == 0) {
			r.Nodes.Dir.Change(func(e *results.Env) { e.Contents.After = now.After })
			return
		}
		if over || ttl > longestTTL || clock.Sleep(ctx, 200*time.Millisecond) != nil {
			return // what it stores may still expire
		}
	}
}
