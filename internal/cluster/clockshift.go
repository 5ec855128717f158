package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

var _ chaos.ClockShifter = (*Node)(nil)

// ShiftClock has the agent move the wall clock of the node's process and its descendants, and of the process that takes its place.
func (n *Node) ShiftClock(ctx context.Context, key string, s chaos.ClockShift) (chaos.ClockShifted, error) {
	args := agent.ClockArgs{Jump: int64(s.Jump), Gain: s.Gain}
	if s.How == chaos.ByFaketime {
		if args.File = n.faketime; args.File == "" {
			return chaos.ClockShifted{}, chaos.Unavailable{What: s.How, Reason: n.Name() + " was not started with libfaketime"}
		}
	}
	defer n.clockChanged()() // also while it is under way
	var out agent.Clocked
	order := agent.Order{Do: agent.DoClock, Key: clockKey(n, key), Args: args}
	err := n.stand(ctx, order, &out)
	if out.Since != 0 { // a process that takes this one's place goes on with its drift
		args.Since = out.Since
		n.amend(order.Key, args)
	}
	return n.shifted(out, err)
}

// UnshiftClock has the agent take one shift back. Where the process has ended that is done.
func (n *Node) UnshiftClock(ctx context.Context, key string) (chaos.ClockShifted, error) {
	defer n.clockChanged()()
	var out agent.Clocked
	err := n.fall(ctx, clockKey(n, key), &out)
	return n.shifted(out, err)
}

// ClockShifts asks the agent what stands.
func (n *Node) ClockShifts(ctx context.Context) (chaos.ClockShifted, error) {
	changes := n.clockChanges.Load()
	var out agent.Clocked
	var err error
	if n.Running() {
		err = n.order(ctx, agent.Order{Do: agent.DoClocked}, &out)
	}
	said, err := n.shifted(out, err)
	said.Changes = changes
	return said, err
}

// clockChanged counts the beginning of a change, and by what it returns its end.
func (n *Node) clockChanged() (done func()) {
	n.clockChanges.Add(1)
	return func() { n.clockChanges.Add(1) }
}

// shifted turns the agent's answer into the fault's. What was asked for is by our own books, so that an agent that does nothing cannot
// hide it; only what was gained meanwhile is by the agent's. A process that has ended is none.
func (n *Node) shifted(c agent.Clocked, err error) (chaos.ClockShifted, error) {
	if errors.Is(err, agent.ErrNoProcess) {
		c.Gone, err = true, nil
	}
	out := chaos.ClockShifted{
		Ahead: time.Duration(c.Drifted), Time: clock.Now(), How: c.How, Gone: c.Gone || !n.Running(),
		Changes: n.clockChanges.Load() + 1, // when the change under way has ended
	}
	n.linking.Lock()
	defer n.linking.Unlock()
	for _, s := range n.orders {
		if args, ok := s.order.Args.(agent.ClockArgs); ok {
			out.Ahead += time.Duration(args.Jump)
			out.Gain += args.Gain
		}
	}
	return out, err
}

// clockKey makes a key that is the run's out of one that is the fault's.
func clockKey(n *Node, key string) string { return key + "/" + n.Name() }

// ReadClocks has the node's own process read its clocks, in ns: by calling, in one of its threads, what its programs call.
func (n *Node) ReadClocks(ctx context.Context) (wall, mono int64, err error) {
	if !n.Running() {
		return 0, 0, fmt.Errorf("%s: %w", n.Name(), agent.ErrNoProcess)
	}
	if n.faketime != "" {
		return 0, 0, fmt.Errorf("%s asks libfaketime for the time, which cannot be asked from outside", n.Name())
	}
	var out agent.ClocksRead
	err = n.order(ctx, agent.Order{Do: agent.DoReadClocks}, &out)
	return out.Wall, out.Mono, err
}
