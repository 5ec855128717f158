package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

var _ wall.Shifter = (*Node)(nil)

// clockFaults is what is done to the clock of a node's process.
type clockFaults struct {
	node *Node
	// faketime is the file in the node that tells its programs their wall clock, where they were made to ask for it.
	faketime string
	changes  atomic.Int64 // beginnings and ends of what is done to its clock
}

// ShiftClock has the agent move the wall clock of the node's process and its descendants, and of the process that takes its place.
func (cf *clockFaults) ShiftClock(ctx context.Context, key string, s wall.Shift) (wall.Shifted, error) {
	if s.How == wall.ByFaketime {
		if s.File = cf.faketime; s.File == "" {
			return wall.Shifted{}, chaos.Unavailable{What: s.How, Reason: cf.node.Name() + " was not started with libfaketime"}
		}
	}
	defer cf.clockChanged()() // also while it is under way
	var out wall.Clocked
	order := agent.Order{Do: wall.DoClock, Key: clockKey(cf.node, key), Args: s}
	err := cf.node.stand(ctx, order, &out)
	if out.Since != 0 { // a process that takes this one's place goes on with its drift
		s.Since = out.Since
		cf.node.amend(order.Key, s)
	}
	return cf.shifted(out, err)
}

// UnshiftClock has the agent take one shift back. Where the process has ended that is done.
func (cf *clockFaults) UnshiftClock(ctx context.Context, key string) (wall.Shifted, error) {
	defer cf.clockChanged()()
	var out wall.Clocked
	err := cf.node.fall(ctx, clockKey(cf.node, key), &out)
	return cf.shifted(out, err)
}

// ClockShifts asks the agent what stands.
func (cf *clockFaults) ClockShifts(ctx context.Context) (wall.Shifted, error) {
	changes := cf.changes.Load()
	var out wall.Clocked
	var err error
	if cf.node.Running() {
		err = cf.node.order(ctx, agent.Order{Do: wall.DoClocked}, &out)
	}
	said, err := cf.shifted(out, err)
	said.Changes = changes
	return said, err
}

// clockChanged counts the beginning of a change, and by what it returns its end.
func (cf *clockFaults) clockChanged() (done func()) {
	cf.changes.Add(1)
	return func() { cf.changes.Add(1) }
}

// shifted turns the agent's answer into the fault's. What was asked for is by our own books, so that an agent that does nothing cannot
// hide it; only what was gained meanwhile is by the agent's. A process that has ended is none.
func (cf *clockFaults) shifted(c wall.Clocked, err error) (wall.Shifted, error) {
	if errors.Is(err, proc.ErrNoProcess) {
		c.Gone, err = true, nil
	}
	out := wall.Shifted{
		Ahead: time.Duration(c.Drifted), Time: clock.Now(), How: c.How, Gone: c.Gone || !cf.node.Running(),
		Changes: cf.changes.Load() + 1, // when the change under way has ended
	}
	cf.node.hand.mu.Lock()
	defer cf.node.hand.mu.Unlock()
	for _, s := range cf.node.hand.standing {
		if args, ok := s.order.Args.(wall.Shift); ok {
			out.Ahead += args.Jump
			out.Gain += args.Gain
		}
	}
	return out, err
}

// clockKey makes a key that is the run's out of one that is the fault's.
func clockKey(n *Node, key string) string { return key + "/" + n.Name() }

// ReadClocks has the node's own process read its clocks, the wall clock first, in ns: by calling, in one of its threads, what its programs call.
func (cf *clockFaults) ReadClocks(ctx context.Context) (now, mono int64, err error) {
	if !cf.node.Running() {
		return 0, 0, fmt.Errorf("%s: %w", cf.node.Name(), proc.ErrNoProcess)
	}
	if cf.faketime != "" {
		return 0, 0, fmt.Errorf("%s asks libfaketime for the time, which cannot be asked from outside", cf.node.Name())
	}
	var out wall.Readings
	err = cf.node.order(ctx, agent.Order{Do: wall.DoReadClocks}, &out)
	return out.Wall, out.Mono, err
}
