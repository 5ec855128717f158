package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// ErrEnded says that a node's control stream ended before it answered.
var ErrEnded = errors.New("its control stream ended")

// Clock is the clock of a node, asked over its control stream.
type Clock struct {
	*wire.RemoteClock
	name  string // of the node
	conn  *wire.Conn
	ended <-chan struct{} // the stream is read to its end
	pongs chan wire.Pong

	asking sync.Mutex // held while the clock is being read
	pings  int        // ids
}

// NewClock returns the clock of a node that is asked over that connection, until ended is closed.
func NewClock(name string, conn *wire.Conn, ended <-chan struct{}) *Clock {
	c := &Clock{name: name, conn: conn, ended: ended, pongs: make(chan wire.Pong, 1)}
	c.RemoteClock = wire.NewRemoteClock(name, func(ctx context.Context) (int64, error) {
		p, err := c.ask(ctx)
		return p.Now, err
	})
	return c
}

// ClockRoom is by how much two readings of one clock may appear to be in the wrong order: a runtime may read it in
// two ways.
const ClockRoom = 10 * time.Millisecond

// Shared reports whether the node's clock is the run's, according to its hello.
func (c *Clock) Shared(h *wire.Hello) (bool, error) {
	if !wire.SameClock(h.BootID, h.TimeNS) {
		return false, nil
	}
	if ahead := h.Now - clock.Now(); ahead > int64(ClockRoom) {
		return true, fmt.Errorf("%s: hello: its now is %v ahead of CLOCK_MONOTONIC, although boot_id and time_ns name that clock", c.name, time.Duration(ahead))
	}
	return true, nil
}

// Read asks the node for its clocks.
func (c *Clock) Read(ctx context.Context) (wire.Pong, error) {
	p, err := c.ask(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("%s: clock: %w", c.name, err)
	case p.Wall == 0:
		err = fmt.Errorf("%s does not report its wall clock", c.name)
	}
	return p, err
}

// ask sends a ping and waits for its answer.
func (c *Clock) ask(ctx context.Context) (wire.Pong, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	select {
	case <-c.pongs: // the late answer to an abandoned ping
	default:
	}
	c.pings++
	if err := c.conn.Send(wire.Frame{Type: wire.TypePing, Ping: &wire.Ping{ID: c.pings}}); err != nil {
		return wire.Pong{}, err
	}
	return c.pong(ctx, c.pings)
}

// Heard handles an answer of the node, and reports whether there was room for it.
func (c *Clock) Heard(p wire.Pong) bool {
	select {
	case c.pongs <- p:
		return true
	default: // it is no longer waited for
		return false
	}
}

func (c *Clock) pong(ctx context.Context, id int) (wire.Pong, error) {
	for {
		select {
		case p := <-c.pongs:
			if p.ID == id {
				return p, nil
			}
		case <-c.ended:
			return wire.Pong{}, ErrEnded
		case <-ctx.Done():
			return wire.Pong{}, context.Cause(ctx)
		}
	}
}
