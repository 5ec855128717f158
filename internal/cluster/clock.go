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

// Clock is the part of a node for clock faults.
type Clock struct {
	part
	// faketime is the libfaketime file of the node's programs, if libfaketime was prepared.
	faketime string
	changes  atomic.Int64 // beginnings and ends of changes to its clock
}

// ShiftClock makes the agent move the clock of the node's process and its descendants, and of the processes that
// replace it.
func (cf *Clock) ShiftClock(ctx context.Context, key string, s wall.Shift) (wall.Shifted, error) {
	if s.How == wall.ByFaketime {
		if s.File = cf.faketime; s.File == "" {
			return wall.Shifted{}, chaos.Unavailable{What: s.How, Reason: cf.Name() +
				" was not started with libfaketime"}
		}
	}
	defer cf.changed()() // also counted while in progress
	asked := clock.Now()
	var out wall.Clocked
	order := agent.Order{Do: wall.DoClock, Key: cf.orders.key(key), Args: s}
	err := cf.orders.apply(ctx, order, &out)
	if out.Since != 0 { // a process that replaces this one continues its drift
		s.Since = out.Since
		cf.orders.amend(order.Key, s)
	}
	return cf.shifted(asked, out, err)
}

// UnshiftClock makes the agent undo one shift. If the process has ended, nothing is left to undo.
func (cf *Clock) UnshiftClock(ctx context.Context, key string) (wall.Shifted, error) {
	defer cf.changed()()
	asked := clock.Now()
	var out wall.Clocked
	err := cf.orders.takeBack(ctx, cf.orders.key(key), &out)
	return cf.shifted(asked, out, err)
}

// ClockShifts asks the agent for the current shift.
func (cf *Clock) ClockShifts(ctx context.Context) (wall.Shifted, error) {
	changes, asked := cf.changes.Load(), clock.Now()
	var out wall.Clocked
	var err error
	if cf.process.Running() {
		err = cf.orders.order(ctx, agent.Order{Do: wall.DoClocked}, &out)
	}
	said, err := cf.shifted(asked, out, err)
	said.Changes = changes
	return said, err
}

// changed counts the beginning of a change; done counts its end.
func (cf *Clock) changed() (done func()) {
	cf.changes.Add(1)
	return func() { cf.changes.Add(1) }
}

// shifted converts the agent's answer into the fault's. The jumps come from the supervisor's own list of orders, so
// that an agent that does nothing cannot hide it. Only the drift since then comes from the agent. An ended process is
// not an error.
func (cf *Clock) shifted(asked int64, c wall.Clocked, err error) (wall.Shifted, error) {
	if errors.Is(err, proc.ErrNoProcess) {
		c.Gone, err = true, nil
	}
	out := wall.Shifted{
		Ahead: time.Duration(c.Drifted), Asked: asked, Time: clock.Now(), How: c.How, Gone: c.Gone ||
			!cf.process.Running(),
		Changes: cf.changes.Load() + 1, // once the change in progress has ended
	}
	for _, s := range cf.orders.list() {
		if args, ok := s.order.Args.(wall.Shift); ok {
			out.Ahead += args.Jump
			out.Gain += args.Gain
			out.Still += args.Still
		}
	}
	return out, err
}

// ReadClocks makes a thread of the node's own process read its wall clock and its monotonic clock, in ns. The latter is
// converted to the run's clock by the agent's offset.
func (cf *Clock) ReadClocks(ctx context.Context) (now, mono int64, err error) {
	if !cf.process.Running() {
		return 0, 0, fmt.Errorf("%s: %w", cf.Name(), proc.ErrNoProcess)
	}
	if cf.faketime != "" {
		return 0, 0, fmt.Errorf("%s asks libfaketime for the time, which cannot be asked from outside", cf.Name())
	}
	var out wall.Readings
	err = cf.orders.order(ctx, agent.Order{Do: wall.DoReadClocks}, &out)
	return out.Wall, cf.orders.runTime(ctx, out.Mono), err
}
