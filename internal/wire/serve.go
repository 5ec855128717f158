package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// grace is how long a node whose supervisor is gone waits for calls under way. It must be gone within 2 s.
	grace = 1500 * time.Millisecond
	// inbox is how many frames may wait while a node is busy with one, as with connecting.
	inbox = 4096
)

// ErrSupervisorGone says that the standard input ended before a stop came.
var ErrSupervisorGone = errors.New("the control stream ended")

// Body is the implementation of a node. Its methods are called one at a time.
type Body interface {
	// Handle carries out one frame; done is true after the stop. An error is sent to the supervisor and ends the
	// node.
	Handle(f *Frame) (done bool, err error)
	// Abandon frees what it can and leaves the rest: the supervisor is gone, or a frame could not be carried out.
	Abandon()
}

// Serve runs a node: it introduces itself with hello, and hands over frames one after the other until the stop. It
// returns nil after a stop that was carried out. If before that in ends, ctx ends or the body calls end, it returns
// within 2 s in any case. Calls that do not end are left behind, so the process should end too. At the end Serve
// closes in and out if they are io.Closers.
func Serve(ctx context.Context, in io.Reader, out io.Writer, hello *Hello,
	begin func(life context.Context, end context.CancelCauseFunc, conn *Conn) (Body, error),
) error {
	conn := NewNodeConn(in, out)
	life, end := context.WithCancelCause(ctx)
	defer closeStreams(in, out)
	defer end(nil)
	b, err := begin(life, end, conn)
	if err != nil {
		return conn.fail(err)
	}
	if err := conn.Send(Frame{Type: TypeHello, Hello: hello}); err != nil {
		b.Abandon()
		return fmt.Errorf("hello: %w", err)
	}
	frames := make(chan *Frame, inbox)
	go receive(conn, frames, end, life.Done())
	finished := make(chan error, 1)
	go func() { finished <- handle(life, conn, b, frames) }()
	select {
	case err := <-finished:
		return err
	case <-life.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case err := <-finished:
		return err
	case <-t.C:
		return context.Cause(life)
	}
}

// receive hands over frames until the input ends, which ends the node. A node is sent no events.
func receive(conn *Conn, frames chan<- *Frame, end context.CancelCauseFunc, over <-chan struct{}) {
	for {
		item, err := conn.Receive()
		if errors.Is(err, io.EOF) {
			err = ErrSupervisorGone
		}
		if err != nil {
			end(err)
			return
		}
		if item.Frame == nil {
			continue
		}
		select {
		case frames <- item.Frame:
		case <-over:
			return
		}
	}
}

// handle carries out frames until the stop, or until the node's life ends.
func handle(life context.Context, conn *Conn, b Body, frames <-chan *Frame) error {
	for {
		select {
		case <-life.Done():
			b.Abandon()
			return context.Cause(life)
		case f := <-frames:
			done, err := b.Handle(f)
			if err != nil {
				err = conn.fail(err)
				b.Abandon()
			}
			if done || err != nil {
				return err
			}
		}
	}
}

// fail tells the supervisor why the node cannot go on.
func (c *Conn) fail(err error) error {
	return errors.Join(err, c.Send(Frame{Type: TypeFailed, Failed: &Failed{Error: err.Error()}}))
}

func closeStreams(streams ...any) {
	for _, s := range streams {
		if c, ok := s.(io.Closer); ok {
			_ = c.Close() // the node is at its end
		}
	}
}
