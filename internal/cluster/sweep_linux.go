package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/internal/cluster/preload"
	"github.com/lockquake/lockquake/internal/cluster/processes"
	"github.com/lockquake/lockquake/internal/cluster/state"
)

// processes kills the children of dead supervisors.
func (s *Swept) processes(ctx context.Context, o SweepOptions) error {
	found, err := processes.Recorded()
	errs := []error{err}
	for _, p := range found {
		what := fmt.Sprintf("%s of run %s (pid %d)", p.Node, p.Owner.Run, p.PID)
		if !p.Owner.Leftover(o.All) {
			s.leave("process "+what, p.Owner)
			continue
		}
		if err := o.unlessLook(func() error { return processes.Kill(ctx, p.Process) }); err != nil {
			errs = append(errs, fmt.Errorf("kill %s: %w", what, err))
			continue
		}
		s.Processes = append(s.Processes, what)
	}
	return errors.Join(errs...)
}

// clocksHere lists the processes of local runs whose clocks an agent may have moved.
func clocksHere() []clockOf {
	found, err := processes.Recorded()
	if err != nil {
		return nil // told when they were swept
	}
	out := make([]clockOf, 0, len(found))
	for _, p := range found {
		out = append(out, clockOf{p.Process, preload.File(state.Of(p.Owner.Run), p.Node)})
	}
	return out
}
