package clientcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

func now() int64 { return clock.Now() }

// client is the supervisor's side of one process.
type client struct {
	process Process
	conn    *wire.Conn
	start   *wire.Start
	hello   *wire.Hello
	ids     int
	results map[int]wire.Result
	waits   time.Duration // for any one action that the client must take
	starts  time.Duration // for its hello

	frames chan *wire.Frame
	ended  chan struct{} // the stream was read to its end

	record *record
	done   wire.Done

	mu     sync.Mutex
	broken error // of the stream
	said   []string
}

// inbox is how many frames may arrive in a check: far more than it asks for.
const inbox = 10_000

func newClient(p Process, start *wire.Start, waits time.Duration) *client {
	c := &client{
		process: p, conn: wire.NewConn(p.Out, p.In), start: start, waits: waits, starts: startPatience,
		results: map[int]wire.Result{}, frames: make(chan *wire.Frame, inbox), ended: make(chan struct{}),
		record: newRecord(start),
	}
	go c.read()
	return c
}

// read reads what the client sends, until the end of the stream or a violation of the protocol.
func (c *client) read() {
	defer close(c.ended)
	total := 0
	for {
		item, err := c.conn.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				c.mu.Lock()
				c.broken = err
				c.mu.Unlock()
			}
			return
		}
		for i := range item.Events {
			if err := c.record.take(&item.Events[i]); err != nil {
				c.mu.Lock()
				c.broken = err
				c.mu.Unlock()
				return
			}
		}
		if item.Frame != nil {
			if total++; total > inbox {
				c.mu.Lock()
				c.broken = fmt.Errorf("%w: %s: more than %d unexpected frames", wire.ErrProtocol,
					item.Frame.Type, inbox)
				c.mu.Unlock()
				return
			}
			c.frames <- item.Frame
		}
	}
}

// wrong records a finding.
func (c *client) wrong(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := fmt.Sprintf(format, args...); text != "" && !slices.Contains(c.said, text) {
		c.said = append(c.said, text)
	}
}

// found returns all findings. If the stream broke, that error replaces the findings about what never came.
func (c *client) found() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return []string{c.broken.Error()}
	}
	return c.said
}

func (c *client) send(f wire.Frame) { _ = c.conn.Send(f) } // the answer shows whether it was sent

// next waits for a frame of one of these types. It keeps results of orders and skips other frames.
func (c *client) next(ctx context.Context, types ...string) (*wire.Frame, error) {
	return c.nextWithin(ctx, c.waits, types...)
}

func (c *client) nextWithin(ctx context.Context, patience time.Duration, types ...string) (*wire.Frame, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	ended := c.ended
	for {
		if ended == nil && len(c.frames) == 0 {
			return nil, fmt.Errorf("no %s: its standard output ended", types[0])
		}
		select {
		case f := <-c.frames:
			switch {
			case slices.Contains(types, f.Type):
				return f, nil
			case f.Type == wire.TypeFailed:
				return nil, fmt.Errorf("it failed: %s", f.Failed.Error)
			case f.Type == wire.TypeResult:
				c.answered(*f.Result)
			}
		case <-ended:
			ended = nil // except for what came before
		case <-over.C:
			return nil, fmt.Errorf("no %s within %v", types[0], patience)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// answered keeps the result of an order.
func (c *client) answered(r wire.Result) {
	if r.ID < 1 || r.ID > c.ids {
		c.wrong("result: id is %d, but no order has it", r.ID)
		return
	}
	c.results[r.ID] = r
}

// greet waits for hello.
func (c *client) greet(ctx context.Context) (*wire.Hello, error) {
	f, err := c.nextWithin(ctx, c.starts, wire.TypeHello)
	if err != nil {
		return nil, err
	}
	c.hello = f.Hello
	return f.Hello, nil
}

// begin greets the client and sends its start frame, in command mode if there is no workload.
func (c *client) begin(ctx context.Context, w *wire.Workload) error {
	if _, err := c.greet(ctx); err != nil {
		return err
	}
	if w != nil {
		c.record.workload(w.Users)
	}
	st := *c.start
	st.Record, st.Workload, st.Timeout, st.Format = true, w, int64(5*time.Second), wire.FormatJSONL
	if !slices.Contains(c.hello.Formats, st.Format) {
		st.Format = wire.FormatRecords
	}
	c.send(wire.Frame{Type: wire.TypeStart, Start: &st})
	_, err := c.next(ctx, wire.TypeReady)
	return err
}

// order gives an order and returns its number.
func (c *client) order(o wire.Command) int {
	c.ids++
	o.ID = c.ids
	if o.Do == wire.DoAcquire {
		c.record.order(o.User)
	}
	c.send(wire.Frame{Type: wire.TypeCommand, Command: &o})
	return o.ID
}

// ask gives an order and waits for its result.
func (c *client) ask(ctx context.Context, o wire.Command) (wire.Result, error) {
	return c.result(ctx, c.order(o))
}

func (c *client) result(ctx context.Context, id int) (wire.Result, error) {
	for {
		if r, ok := c.results[id]; ok {
			return r, nil
		}
		f, err := c.next(ctx, wire.TypeResult)
		if err != nil {
			return wire.Result{}, err
		}
		c.answered(*f.Result)
	}
}

// stop ends the client in order, and compares the totals in its goodbye with what it sent.
func (c *client) stop(ctx context.Context) error {
	c.send(wire.Frame{Type: wire.TypeStop})
	f, err := c.next(ctx, wire.TypeDone)
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := c.ends(ctx, "done", c.waits); err != nil {
		return err
	}
	c.done = *f.Done
	events, held := c.record.totals()
	if f.Done.Recorded != events {
		c.wrong("done: recorded is %d, but %d events came", f.Done.Recorded, events)
	}
	if held > 0 {
		c.wrong("done: %d grants were not released before it", held)
	}
	return nil
}

// ends waits for the end of the process.
func (c *client) ends(ctx context.Context, why string, within time.Duration) error {
	const room = 3 * time.Second // for a busy machine
	select {
	case <-c.process.Ended:
	case <-time.After(within + room):
		return fmt.Errorf("%s, but the process did not end within %v", why, within)
	case <-ctx.Done():
		return ctx.Err()
	}
	<-c.ended
	return nil
}

// end leaves nothing of the process behind: it ends when its input does, or the code that started it kills it.
func (c *client) end() { _ = c.conn.Close() }

// clocks compares the clocks that the client reports with this machine's, if it says that they are the same.
func (c *client) clocks(h *wire.Hello, p *wire.Pong) {
	if p.Wall == 0 || p.Mono == 0 {
		c.wrong("pong: wall or mono is missing: a clock fault on the client could not be confirmed")
	}
	if h.BootID != clock.BootID() || h.TimeNS != clock.TimeNamespace() {
		return // another clock: a run would measure it
	}
	const room = int64(10 * time.Millisecond)
	if ahead := p.Now - now(); ahead > room || ahead < -int64(patience) {
		c.wrong("pong: now is %v away from CLOCK_MONOTONIC, although boot_id and time_ns of hello name that clock",
			time.Duration(ahead))
	}
}

// causes returns the errors that the client counted.
func (c *client) causes() []string {
	out := []string{"it counted no errors"}
	for text, n := range c.done.Errors {
		out = append(out[:0], fmt.Sprintf("%d times %s", n, text))
	}
	return out
}
