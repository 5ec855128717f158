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

// clocks is the run's Observer with one thing more: the clocks of nodes that the service does not tell. Clients and resources are asked
// over their control streams; of servers, one of their own threads is made to read them.
type clocks struct{ r *run }

// Unwrap returns the service's own Observer, which may be able to do more than answer.
func (c clocks) Unwrap() chaos.Observer { return c.r.service }

// Facts lists what can be asked.
func (c clocks) Facts() map[string]string {
	out := maps.Clone(c.r.service.Facts())
	for _, fact := range []string{chaos.FactClock, chaos.FactMonotonic} {
		if _, ok := out[fact]; !ok {
			out[fact] = "a clock of the node, by its control stream or as its own thread reads it"
		}
	}
	return out
}

// Ask asks a client or resource itself for its clocks, and the service for everything else.
func (c clocks) Ask(ctx context.Context, node, fact string) (string, error) {
	if fact != chaos.FactClock && fact != chaos.FactMonotonic {
		return c.r.service.Ask(ctx, node, fact)
	}
	for _, s := range c.r.sessions {
		if s.node.Name() == node {
			p, err := s.clocks(ctx)
			return clockText(fact, p.Wall, p.Mono+s.offset, ""), err
		}
	}
	_, known := c.r.service.Facts()[fact]
	if known {
		answer, err := c.r.service.Ask(ctx, node, fact)
		if err == nil || fact == chaos.FactClock { // a server that does not answer is not asked in another way: it may be paused
			return answer, err
		}
	}
	return c.borrowed(ctx, node, fact)
}

// borrowed has a thread of the node read its clocks.
func (c clocks) borrowed(ctx context.Context, node, fact string) (string, error) {
	n := c.r.cluster.Node(node)
	if n == nil {
		return "", fmt.Errorf("there is no node %q", node)
	}
	wall, mono, err := n.ReadClocks(ctx)
	return clockText(fact, wall, mono, " as a thread of its own reads it"), err
}

// clockText is the answer to one of the two facts.
func clockText(fact string, wall, mono int64, how string) string {
	if fact == chaos.FactMonotonic {
		return strconv.FormatInt(mono, 10) + how
	}
	return time.Unix(0, wall).UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + how
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
