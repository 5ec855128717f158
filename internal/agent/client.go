package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
)

// Client is the supervisor's end of an agent's control stream. It may be used by several goroutines.
type Client struct {
	in         io.WriteCloser
	done       chan struct{} // closed when the agent's stream ended
	clock      *wire.RemoteClock
	otherClock bool // according to its greeting, the agent's monotonic clock is not ours
	pid        int  // of the agent, as it sees itself

	mu      sync.Mutex
	last    uint64
	pending map[uint64]chan response
	closed  bool
}

// ErrEnded means that the agent is gone.
var ErrEnded = errors.New("the agent's control stream has ended")

// Connect waits for the greeting of the agent on the other end of the two streams. If the agent has another clock,
// Connect measures it.
func Connect(ctx context.Context, in io.WriteCloser, out io.Reader) (*Client, error) {
	c := &Client{in: in, done: make(chan struct{}), pending: make(map[uint64]chan response)}
	c.clock = wire.NewRemoteClock("agent", c.now)
	greeted := make(chan error, 1)
	go c.read(bufio.NewReader(out), greeted)
	select {
	case err := <-greeted:
		if err == nil && c.otherClock {
			_, err = c.clock.Measure(ctx)
		}
		if err != nil {
			_ = in.Close()
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		_ = in.Close()
		return nil, fmt.Errorf("wait for the agent's greeting: %w", ctx.Err())
	}
}

// read takes the greeting, and then hands each response to the caller that waits for it.
func (c *Client) read(out *bufio.Reader, greeted chan<- error) {
	defer c.end()
	var h hello
	line, err := out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &h)
	}
	if err == nil && h.Version != Version {
		err = fmt.Errorf("it speaks version %d, this supervisor %d", h.Version, Version)
	}
	if err != nil {
		greeted <- fmt.Errorf("the agent did not greet (%q): %w", line, err)
		return
	}
	c.pid = h.PID
	c.otherClock = !wire.SameClock(h.BootID, h.TimeNS)
	greeted <- nil
	for {
		line, err := out.ReadBytes('\n')
		if err != nil {
			return
		}
		var r response
		if json.Unmarshal(line, &r) != nil {
			return
		}
		c.mu.Lock()
		wait := c.pending[r.ID]
		delete(c.pending, r.ID)
		c.mu.Unlock()
		if wait != nil {
			wait <- r
		}
	}
}

// end fails the pending requests.
func (c *Client) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	close(c.done)
}

// Own registers a pid, as the agent sees it, as part of the run. With kill it is killed when the stream ends.
func (c *Client) Own(ctx context.Context, pid int, kill bool) (proc.Process, error) {
	r, err := c.call(ctx, request{Do: doOwn, Process: proc.Process{PID: pid}, Kill: kill})
	if err != nil {
		return proc.Process{}, err
	}
	return *r.Process, nil
}

// Inspect reads the state of a process that belongs to the run.
func (c *Client) Inspect(ctx context.Context, p proc.Process) (node.State, error) {
	r, err := c.call(ctx, request{Do: doInspect, Process: p})
	if err != nil {
		return node.State{}, err
	}
	c.date(r.State)
	return *r.State, nil
}

// date converts the agent's times in a state into the run's.
func (c *Client) date(s *node.State) {
	if s != nil && c.clock.Separate() {
		s.Time = c.RunTime(s.Time)
		s.TimeError = c.clock.Error(s.Time)
	}
}

// RunTime converts a time of the agent into the run's; 0, unknown, stays 0.
func (c *Client) RunTime(at int64) int64 {
	if at == 0 {
		return 0
	}
	return c.clock.Run(at)
}

// Clock returns the agent's clock, with which it timestamps what it sees. A provider with agents on other machines has
// it measured, even if the boot ids are equal. From then on Inspect and Signal return the run's time.
func (c *Client) Clock() *wire.RemoteClock { return c.clock }

// now asks the agent for the time.
func (c *Client) now(ctx context.Context) (int64, error) {
	r, err := c.call(ctx, request{Do: doNow})
	return r.Now, err
}

// Signal sends the named signal to a process that belongs to the run.
func (c *Client) Signal(ctx context.Context, p proc.Process, name string) error {
	_, err := c.SignalSeen(ctx, p, name)
	return err
}

// SignalSeen sends the named signal and returns the state right after a STOP or CONT; nil for other signals.
func (c *Client) SignalSeen(ctx context.Context, p proc.Process, name string) (*node.State, error) {
	r, err := c.call(ctx, request{Do: doSignal, Process: p, Signal: name})
	c.date(r.State)
	return r.State, err
}

// Order makes the agent carry out an order of a mechanism on a process of the run. Undo with the same key, or the end
// of the control stream, undoes its effects. result may be nil.
func (c *Client) Order(ctx context.Context, o Order, result any) error {
	args, err := json.Marshal(o.Args)
	if err != nil {
		return fmt.Errorf("arguments of %s: %w", o.Do, err)
	}
	return c.perform(ctx, request{Do: o.Do, Process: o.Process, With: o.With, Key: o.Key, Args: args}, result)
}

// Order is one use of an order.
type Order struct {
	Do      string         // name of the order
	Process proc.Process   // of the run
	With    []proc.Process // further processes of the run that it concerns
	Key     string         // name for the undo
	Args    any            // marshals to JSON
}

// Undo undoes the effects of the order with the key.
func (c *Client) Undo(ctx context.Context, key string, result any) error {
	return c.perform(ctx, request{Do: doUndo, Key: key}, result)
}

func (c *Client) perform(ctx context.Context, r request, result any) error {
	a, err := c.call(ctx, r)
	if result != nil && len(a.Result) > 0 {
		err = errors.Join(err, json.Unmarshal(a.Result, result))
	}
	return err
}

// PID returns the agent's pid as the agent itself sees it. The engine sees the same one if they share a namespace.
func (c *Client) PID() int { return c.pid }

// Supports returns why an order cannot be carried out where the agent runs; nil if it can.
func (c *Client) Supports(ctx context.Context, do string) error {
	args, err := json.Marshal(do)
	if err != nil {
		return err
	}
	return c.perform(ctx, request{Do: doSupports, Args: args}, nil)
}

// Standing returns the keys of all orders of the run that were not undone.
func (c *Client) Standing(ctx context.Context) ([]string, error) {
	var keys []string
	err := c.perform(ctx, request{Do: doStanding}, &keys)
	return keys, err
}

// Ended returns a channel that is closed when the agent is gone.
func (c *Client) Ended() <-chan struct{} { return c.done }

// Close ends the control stream and waits, at most 2 s, until the agent has healed everything and is gone.
func (c *Client) Close() error {
	_ = c.in.Close()
	select {
	case <-c.done:
		return nil
	case <-time.After(2 * time.Second):
		return errors.New("the agent did not end within 2 s of its control stream")
	}
}

func (c *Client) call(ctx context.Context, r request) (response, error) {
	answer := make(chan response, 1)
	if err := c.send(r, answer); err != nil {
		return response{}, err
	}
	select {
	case a := <-answer:
		clock.CarriedOut(ctx, c.RunTime(a.At))
		if a.Gone {
			return a, proc.ErrNoProcess
		}
		if a.Error != "" {
			return a, errors.New(a.Error)
		}
		return a, nil
	case <-c.done:
		return response{}, ErrEnded
	case <-ctx.Done():
		return response{}, ctx.Err()
	}
}

func (c *Client) send(r request, answer chan response) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrEnded
	}
	c.last++
	r.ID = c.last
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	c.pending[r.ID] = answer
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		delete(c.pending, r.ID)
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	return nil
}
