package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

var _ chaos.ClockShifter = (*Node)(nil)

// ShiftClock has the agent move the wall clock of the node's process and its descendants. A process that is started later in the
// node has the machine's clock.
func (n *Node) ShiftClock(ctx context.Context, key string, s chaos.ClockShift) (chaos.ClockShifted, error) {
	var out agent.Clocked
	err := n.order(ctx, agent.Order{
		Do: agent.DoClock, Key: clockKey(n, key), Args: agent.ClockArgs{Jump: int64(s.Jump), Gain: s.Gain},
	}, &out)
	return shifted(out), err
}

// UnshiftClock has the agent take one shift back. Where the process has ended that is done.
func (n *Node) UnshiftClock(ctx context.Context, key string) (chaos.ClockShifted, error) {
	if !n.Running() {
		return chaos.ClockShifted{Gone: true, Time: clock.Now()}, nil
	}
	var out agent.Clocked
	err := n.undo(ctx, clockKey(n, key), &out)
	if errors.Is(err, agent.ErrNoProcess) {
		return chaos.ClockShifted{Gone: true, Time: clock.Now()}, nil
	}
	return shifted(out), err
}

// clockKey makes a key that is the run's out of one that is the fault's.
func clockKey(n *Node, key string) string { return key + "/" + n.Name() }

func shifted(c agent.Clocked) chaos.ClockShifted {
	return chaos.ClockShifted{Ahead: time.Duration(c.Offset), Gain: c.Gain, Time: clock.Now(), How: c.How, Gone: c.Gone}
}
