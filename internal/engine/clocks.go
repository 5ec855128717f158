package engine

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/wire"
)

// clocks is the run's Observer with one thing more: the clocks of clients and resources, asked for over their control streams.
type clocks struct{ r *run }

// Unwrap returns the service's own Observer, which may be able to do more than answer.
func (c clocks) Unwrap() chaos.Observer { return c.r.service }

// Facts lists what can be asked.
func (c clocks) Facts() map[string]string {
	out := maps.Clone(c.r.service.Facts())
	out[chaos.FactMonotonic] = "the monotonic clock of a client or resource, in ns"
	return out
}

// Ask asks a client or resource itself for its clocks, and the service for everything else.
func (c clocks) Ask(ctx context.Context, node, fact string) (string, error) {
	if fact != chaos.FactClock && fact != chaos.FactMonotonic {
		return c.r.service.Ask(ctx, node, fact)
	}
	for _, s := range c.r.sessions {
		if s.node.Name() != node {
			continue
		}
		p, err := s.clocks(ctx)
		if err != nil {
			return "", err
		}
		if fact == chaos.FactMonotonic {
			return strconv.FormatInt(p.Mono+s.offset, 10), nil
		}
		return time.Unix(0, p.Wall).UTC().Format("2006-01-02T15:04:05.000000000Z07:00"), nil
	}
	if fact == chaos.FactMonotonic {
		return "", fmt.Errorf("%s does not tell it", node)
	}
	return c.r.service.Ask(ctx, node, fact)
}

// clocks asks a node for its clocks.
func (s *session) clocks(ctx context.Context) (wire.Pong, error) {
	s.pinging.Lock()
	defer s.pinging.Unlock()
	select {
	case <-s.pongs: // the late answer to one that was given up
	default:
	}
	s.pings++
	id := pings + s.pings
	if err := s.conn.Send(wire.Frame{Type: wire.TypePing, Ping: &wire.Ping{ID: id}}); err != nil {
		return wire.Pong{}, fmt.Errorf("%s: clock: %w", s.node.Name(), err)
	}
	p, err := s.pong(ctx, id)
	if err == nil && p.Wall == 0 {
		err = fmt.Errorf("%s does not tell its wall clock", s.node.Name())
	}
	return p, err
}
