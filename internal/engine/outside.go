package engine

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// outsideWatch looks for events that no fault caused: a server that is stopped, and an agent that has ended. Whatever
// caused them, it was not the lock.
type outsideWatch struct {
	nodes  *deployment.Nodes
	faults *rundir.Faults
	record *rundir.Dir
}

// outsideEvery is the time between two looks at the servers.
const outsideEvery = 200 * time.Millisecond

// watch looks until ctx ends, and records what it saw.
func (w outsideWatch) watch(ctx context.Context) {
	stopped := map[string]*results.Stopped{}
	agentGone := false
	for clock.Sleep(ctx, outsideEvery) == nil {
		for _, n := range w.nodes.Cluster.ByRole(node.Server) {
			if !agentGone && n.Orders.AgentEnded(ctx) {
				agentGone = true
				w.record.Change(func(e *results.Env) {
					e.Warnings = append(e.Warnings,
						"the agent ended during the load: its faults were undone then, and no more faults can use it")
				})
			}
			w.look(ctx, n, stopped)
		}
	}
	for _, s := range stopped {
		w.note(s)
	}
}

// look checks one server. It records a stop that is over.
func (w outsideWatch) look(ctx context.Context, n *cluster.Node, stopped map[string]*results.Stopped) {
	if !n.Process.Running() || !n.Signals.Overseen(ctx) {
		return
	}
	at := clock.Now()
	state, err := n.Signals.Inspect(ctx)
	s := stopped[n.Name()]
	switch {
	case err != nil:
	case !state.Stopped() || w.faults.At(n.Name(), at):
		w.note(s)
		delete(stopped, n.Name())
	case s == nil:
		stopped[n.Name()] = &results.Stopped{Node: n.Name(), From: at, To: at}
	default:
		s.To = at
	}
}

// note records a stop that was seen more than once.
func (w outsideWatch) note(s *results.Stopped) {
	if s != nil && s.To > s.From {
		w.record.Change(func(e *results.Env) { e.Stopped = append(e.Stopped, *s) })
	}
}
