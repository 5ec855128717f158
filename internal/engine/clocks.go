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
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/wire"
)

// remoteClock is the clock of a node, asked over its control stream.
type remoteClock struct {
	*wire.RemoteClock
	name  string // of the node
	conn  *wire.Conn
	ended <-chan struct{} // the stream is read to its end
	pongs chan wire.Pong

	asking sync.Mutex // held while the clock is asked for
	pings  int        // ids
}

func newRemoteClock(name string, conn *wire.Conn, ended <-chan struct{}) *remoteClock {
	c := &remoteClock{name: name, conn: conn, ended: ended, pongs: make(chan wire.Pong, 1)}
	c.RemoteClock = wire.NewRemoteClock(name, func(ctx context.Context) (int64, error) {
		p, err := c.ask(ctx)
		return p.Now, err
	})
	return c
}

// clockRoom is by how much two readings of one clock may seem to be in the wrong order: a runtime may read it in two
// ways.
const clockRoom = 10 * time.Millisecond

// shared tells whether the node's clock is the run's, by what its hello says.
func (c *remoteClock) shared(h *wire.Hello) (bool, error) {
	if !wire.SameClock(h.BootID, h.TimeNS) {
		return false, nil
	}
	if ahead := h.Now - clock.Now(); ahead > int64(clockRoom) {
		return true, fmt.Errorf("%s: hello: its now is %v ahead of CLOCK_MONOTONIC, and by boot_id and time_ns it is that clock", c.name, time.Duration(ahead))
	}
	return true, nil
}

// read asks the node for its clocks.
func (c *remoteClock) read(ctx context.Context) (wire.Pong, error) {
	p, err := c.ask(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("%s: clock: %w", c.name, err)
	case p.Wall == 0:
		err = fmt.Errorf("%s does not tell its wall clock", c.name)
	}
	return p, err
}

// ask sends a ping and waits for its answer.
func (c *remoteClock) ask(ctx context.Context) (wire.Pong, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	select {
	case <-c.pongs: // the late answer to one that was given up
	default:
	}
	c.pings++
	if err := c.conn.Send(wire.Frame{Type: wire.TypePing, Ping: &wire.Ping{ID: c.pings}}); err != nil {
		return wire.Pong{}, err
	}
	return c.pong(ctx, c.pings)
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
			return wire.Pong{}, errEnded
		case <-ctx.Done():
			return wire.Pong{}, context.Cause(ctx)
		}
	}
}

// clocks is the service's Observer, which also answers for clocks that the service does not tell. Clients and resources
// are asked over their control streams. A server is made to read its clocks on one of its own threads.
type clocks struct {
	nodes     *deployment.Nodes
	processes *processes
}

// Unwrap returns the service's own Observer, which may be able to do more than answer.
func (c clocks) Unwrap() chaos.Observer { return c.nodes.Service }

// Facts lists what can be asked.
func (c clocks) Facts() map[string]string {
	out := maps.Clone(c.nodes.Service.Facts())
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
		return c.nodes.Service.Ask(ctx, node, fact)
	}
	for _, s := range c.processes.all {
		if s.node.Name() == node {
			p, err := s.clock.read(ctx)
			return clockText(fact, p.Wall, s.clock.Run(p.Mono), ""), err
		}
	}
	_, known := c.nodes.Service.Facts()[fact]
	if known {
		answer, err := c.nodes.Service.Ask(ctx, node, fact)
		// a server that does not answer is not asked in another way: it may be paused
		if err == nil || fact == chaos.FactClock {
			return answer, err
		}
	}
	return c.readByThread(ctx, node, fact)
}

// readByThread has a thread of the node read its clocks.
func (c clocks) readByThread(ctx context.Context, node, fact string) (string, error) {
	n := c.nodes.Cluster.Node(node)
	if n == nil {
		return "", fmt.Errorf("there is no node %q", node)
	}
	wall, mono, err := n.Clock.ReadClocks(ctx)
	return clockText(fact, wall, mono, " as a thread of its own reads it"), err
}

// clockText is the answer to one of the two facts.
func clockText(fact string, wall, mono int64, how string) string {
	if fact == chaos.FactMonotonic {
		return strconv.FormatInt(mono, 10) + how
	}
	return time.Unix(0, wall).UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + how
}
