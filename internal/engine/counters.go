package engine

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// serverCounters ask the servers what they have counted.
type serverCounters struct {
	nodes  *deployment
	record *record
	// attached says that the servers are somebody else's. What they count is what others ask of them, too.
	attached bool
}

// requests is the service as a counter of its requests; nil: it counts none, or others' as well.
func (c serverCounters) requests() topology.RequestCounter {
	if counter, ok := c.nodes.service.(topology.RequestCounter); ok && !c.attached {
		return counter
	}
	return nil
}

// read asks all servers.
func (c serverCounters) read(ctx context.Context) (r results.Reading) {
	began := clock.Now()
	r.Starts = map[string]int{}
	for _, n := range c.nodes.cluster.ByRole(node.Server) {
		r.Starts[n.Name()] = n.Starts()
	}
	var group sync.WaitGroup
	if counter := c.requests(); counter != nil {
		group.Go(func() { r.Requests = counter.Requests(ctx) })
	}
	if counter, ok := c.nodes.service.(topology.ConnectionCounter); ok && !c.attached {
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
	c.record.change(func(e *results.Env) { begun = len(e.Readings) > 0 })
	if !begun { // nothing is measured yet
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := c.read(ctx)
	c.record.change(func(e *results.Env) { e.Readings = append(e.Readings, r) })
}
