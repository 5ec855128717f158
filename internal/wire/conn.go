package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// maxBatch bounds the records of one batch.
const maxBatch = 1 << 20

// queued is how many frames may wait for a node that does not read.
const queued = 1024

// ErrBacklog says that a node has not read its frames for so long that no more are queued for it.
var ErrBacklog = errors.New("node does not read its control stream")

// Conn is one side of the control stream. Send may be called by many goroutines, Receive by one.
type Conn struct {
	dec *Decoder

	mu  sync.Mutex // serialises writes, so that frames and batches stay whole
	w   io.Writer
	buf []byte

	out      chan []byte // supervisor side only
	done     chan struct{}
	closing  sync.Once
	failMu   sync.Mutex
	failure  error
	finished chan struct{}
}

// NewConn returns the supervisor's side: it reads what a node sends from r and writes to w. A stopped node blocks
// writes, so a separate goroutine makes them, which Close ends; Send returns at once.
func NewConn(r io.Reader, w io.Writer) *Conn {
	c := &Conn{
		dec: NewDecoder(r), w: w,
		out: make(chan []byte, queued), done: make(chan struct{}), finished: make(chan struct{}),
	}
	go c.write()
	return c
}

// NewNodeConn returns a node's side. When Send returns, the operating system has the frame. Once the supervisor is
// dead, Send returns an error.
func NewNodeConn(r io.Reader, w io.Writer) *Conn {
	OutliveReader()
	return &Conn{dec: NewDecoder(r), w: w}
}

// Send sends one frame. It fills in the protocol's version. On the supervisor's side an error is about an earlier
// frame.
func (c *Conn) Send(f Frame) error {
	f = c.prepare(f)
	line, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("frame %s: %w", f.Type, err)
	}
	line = append(line, '\n')
	if c.out == nil {
		return c.writeAll(line)
	}
	if err := c.failed(); err != nil {
		return err
	}
	select {
	case <-c.done:
		return io.ErrClosedPipe
	default:
	}
	select {
	case c.out <- line:
		return nil
	default:
		return fmt.Errorf("%w: %d frames wait", ErrBacklog, queued)
	}
}

// prepare sets the version without changing what the caller's pointers refer to.
func (c *Conn) prepare(f Frame) Frame {
	switch {
	case f.Hello != nil:
		h := *f.Hello
		h.Version = Version
		f.Hello = &h
	case f.Start != nil:
		s := *f.Start
		s.Version = Version
		f.Start = &s
		c.dec.SetLocks(s.Locks) // events in JSON come only after this frame arrived
	}
	return f
}

// SendEvents sends events as a batch of records.
func (c *Conn) SendEvents(events []history.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = beginBatch(c.buf[:0])
	for i := range events {
		c.buf = history.AppendRecord(c.buf, &events[i])
	}
	endBatch(c.buf, len(events))
	_, err := c.w.Write(c.buf)
	return err
}

// beginBatch appends the head of a batch whose number of records is not known yet.
func beginBatch(b []byte) []byte { return append(b, BatchMark, 0, 0, 0, 0) }

// endBatch writes the number of records into the head at the beginning of b.
func endBatch(b []byte, n int) { binary.LittleEndian.PutUint32(b[1:], uint32(n)) }

// writeAll writes whole frames or batches.
func (c *Conn) writeAll(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.w.Write(b)
	return err
}

// write sends what Send has queued until Close, or until the node's end of the stream breaks.
func (c *Conn) write() {
	defer close(c.finished)
	for {
		select {
		case <-c.done:
			return
		case line := <-c.out:
			if _, err := c.w.Write(line); err != nil {
				c.failMu.Lock()
				c.failure = err
				c.failMu.Unlock()
				return
			}
		}
	}
}

func (c *Conn) failed() error {
	c.failMu.Lock()
	defer c.failMu.Unlock()
	return c.failure
}

// Receive returns the next frame or events, and io.EOF at the end of the stream. On a node's side it answers pings by
// itself.
func (c *Conn) Receive() (Item, error) {
	for {
		item, err := c.dec.Next()
		if err != nil || item.Frame == nil {
			return item, err
		}
		switch f := item.Frame; {
		case f.Start != nil:
			c.dec.SetLocks(f.Start.Locks)
		case f.Ping != nil && c.out == nil:
			if err := c.Send(Frame{Type: TypePong, Pong: pong(f.Ping.ID)}); err != nil {
				return Item{}, err
			}
			continue
		}
		return item, nil
	}
}

// pong reads the clocks, each in the way in which other programs read them.
func pong(id int) *Pong {
	return &Pong{ID: id, Now: clock.Now(), Wall: clock.Wall().UnixNano(), Mono: clock.Mono()}
}

// Close ends the supervisor's side and drops what is still queued. If w is an io.Closer it is closed, which tells the
// node to end itself. On a node's side Close does nothing.
func (c *Conn) Close() error {
	if c.out == nil {
		return nil
	}
	var err error
	c.closing.Do(func() {
		close(c.done)
		if closer, ok := c.w.(io.Closer); ok {
			err = closer.Close()
			<-c.finished
		}
	})
	return err
}
