package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// drift is the difference between a node's clock and the run's.
type drift struct {
	offset int64 // ns to add to the node's times
	err    int64 // ns by which that may be wrong
}

// pings is how often a node's clock is asked for; the quickest answer counts.
const pings = 30

// compare checks the protocol's version, and finds how a node's clock relates to the run's: they are the same where
// boot id and time namespace are, otherwise the difference is measured.
func (s *session) compare(ctx context.Context) (drift, error) {
	h := s.greeting()
	if h.BootID == clock.BootID() && h.TimeNS == clock.TimeNamespace() && h.BootID != "" {
		return drift{}, nil
	}
	return s.measure(ctx)
}

// measure asks the node for its clock, and bounds the difference by the time that the quickest answer took.
func (s *session) measure(ctx context.Context) (drift, error) {
	s.pinging.Lock()
	defer s.pinging.Unlock()
	best := drift{err: int64(time.Hour)}
	for id := 1; id <= pings; id++ {
		asked := clock.Now()
		if err := s.conn.Send(wire.Frame{Type: wire.TypePing, Ping: &wire.Ping{ID: id}}); err != nil {
			return drift{}, fmt.Errorf("%s: clock: %w", s.node.Name(), err)
		}
		p, err := s.pong(ctx, id)
		if err != nil {
			return drift{}, err
		}
		answered := clock.Now()
		if half := (answered - asked + 1) / 2; half < best.err {
			best = drift{offset: asked + half - p.Now, err: half}
		}
	}
	return best, nil
}

// moved measures a clock again that had to be measured, and tells when it has run away from what its times were
// narrowed by: the intervals of its node would then prove nothing.
func (s *session) moved(ctx context.Context) error {
	if s.drift == (drift{}) || !s.node.Running() {
		return nil
	}
	now, err := s.measure(ctx)
	if err != nil {
		return err
	}
	if by := max(now.offset-s.drift.offset, s.drift.offset-now.offset); by > s.drift.err+now.err {
		return fmt.Errorf("%s: its clock moved by %v against the run's, more than the %v that its times are narrowed by",
			s.node.Name(), time.Duration(by), time.Duration(s.drift.err))
	}
	return nil
}

func (s *session) pong(ctx context.Context, id int) (wire.Pong, error) {
	for {
		select {
		case p := <-s.pongs:
			if p.ID == id {
				return p, nil
			}
		case <-s.ended:
			return wire.Pong{}, fmt.Errorf("%s: clock: %w", s.node.Name(), errEnded)
		case <-ctx.Done():
			return wire.Pong{}, fmt.Errorf("%s: clock: %w", s.node.Name(), context.Cause(ctx))
		}
	}
}
