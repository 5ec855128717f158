package engine

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// remoteClock is the clock of a node, asked over its control stream.
type remoteClock struct {
	name  string // of the node
	conn  *wire.Conn
	ended <-chan struct{} // the stream is read to its end
	pongs chan wire.Pong
	drift drift // as it was measured; zero where the clocks are one

	asking sync.Mutex // held while the clock is asked for
	pings  int        // ids of pings beyond those of measure
}

// drift is the difference between a node's clock and the run's.
type drift struct {
	offset int64 // ns to add to the node's times
	err    int64 // ns by which that may be wrong
}

// clockRoom is by how much two readings of one clock may seem to be in the wrong order: a runtime may read it in two ways.
const clockRoom = 10 * time.Millisecond

// pings is how often a node's clock is asked for; the quickest answer counts.
const pings = 30

// compare finds how the node's clock relates to the run's: they are the same where boot id and time namespace are,
// otherwise the difference is measured.
func (c *remoteClock) compare(ctx context.Context, h *wire.Hello) (err error) {
	if h.BootID == clock.BootID() && h.TimeNS == clock.TimeNamespace() && h.BootID != "" {
		if ahead := h.Now - clock.Now(); ahead > int64(clockRoom) {
			return fmt.Errorf("%s: hello: its now is %v ahead of CLOCK_MONOTONIC, and by boot_id and time_ns it is that clock", c.name, time.Duration(ahead))
		}
		return nil
	}
	c.drift, err = c.measure(ctx)
	return err
}

// measure asks the node for its clock, and bounds the difference by the time that the quickest answer took.
func (c *remoteClock) measure(ctx context.Context) (drift, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	best := drift{err: int64(time.Hour)}
	for id := 1; id <= pings; id++ {
		asked := clock.Now()
		if err := c.conn.Send(wire.Frame{Type: wire.TypePing, Ping: &wire.Ping{ID: id}}); err != nil {
			return drift{}, fmt.Errorf("%s: clock: %w", c.name, err)
		}
		p, err := c.pong(ctx, id)
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

// moved measures the clock again, if it had to be measured, and returns an error if it has moved by more than the measured error:
// the times of its node then prove nothing.
func (c *remoteClock) moved(ctx context.Context) error {
	if c.drift == (drift{}) {
		return nil
	}
	now, err := c.measure(ctx)
	if err != nil {
		return err
	}
	if by := max(now.offset-c.drift.offset, c.drift.offset-now.offset); by > c.drift.err+now.err {
		return fmt.Errorf("%s: its clock moved by %v against the run's, more than the %v that its times are narrowed by",
			c.name, time.Duration(by), time.Duration(c.drift.err))
	}
	return nil
}

// read asks the node for its clocks.
func (c *remoteClock) read(ctx context.Context) (wire.Pong, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	select {
	case <-c.pongs: // the late answer to one that was given up
	default:
	}
	c.pings++
	id := pings + c.pings
	if err := c.conn.Send(wire.Frame{Type: wire.TypePing, Ping: &wire.Ping{ID: id}}); err != nil {
		return wire.Pong{}, fmt.Errorf("%s: clock: %w", c.name, err)
	}
	p, err := c.pong(ctx, id)
	if err == nil && p.Wall == 0 {
		err = fmt.Errorf("%s does not tell its wall clock", c.name)
	}
	return p, err
}

// heard takes an answer of the node, and tells whether there was room for it.
func (c *remoteClock) heard(p wire.Pong) bool {
	select {
	case c.pongs <- p:
		return true
	default: // nobody waits for it any more
		return false
	}
}

func (c *remoteClock) pong(ctx context.Context, id int) (wire.Pong, error) {
	for {
		select {
		case p := <-c.pongs:
			if p.ID == id {
				return p, nil
			}
		case <-c.ended:
			return wire.Pong{}, fmt.Errorf("%s: clock: %w", c.name, errEnded)
		case <-ctx.Done():
			return wire.Pong{}, fmt.Errorf("%s: clock: %w", c.name, context.Cause(ctx))
		}
	}
}

// clocks is the service's Observer, which also answers for clocks that the service does not tell. Clients and resources are asked over
// their control streams. A server is made to read its clocks on one of its own threads.
type clocks struct {
	nodes     *deployment
	processes *processes
}

// Unwrap returns the service's own Observer, which may be able to do more than answer.
func (c clocks) Unwrap() chaos.Observer { return c.nodes.service }

// Facts lists what can be asked.
func (c clocks) Facts() map[string]string {
	out := maps.Clone(c.nodes.service.Facts())
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
		return c.nodes.service.Ask(ctx, node, fact)
	}
	for _, s := range c.processes.all {
		if s.node.Name() == node {
			p, err := s.clock.read(ctx)
			return clockText(fact, p.Wall, p.Mono+s.clock.drift.offset, ""), err
		}
	}
	_, known := c.nodes.service.Facts()[fact]
	if known {
		answer, err := c.nodes.service.Ask(ctx, node, fact)
		if err == nil || fact == chaos.FactClock { // a server that does not answer is not asked in another way: it may be paused
			return answer, err
		}
	}
	return c.readByThread(ctx, node, fact)
}

// readByThread has a thread of the node read its clocks.
func (c clocks) readByThread(ctx context.Context, node, fact string) (string, error) {
	n := c.nodes.cluster.Node(node)
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
