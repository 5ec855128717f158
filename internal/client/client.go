// Package client is the client process: many lock users in one process that faults hit. It is driven over its standard
// streams (docs/protocol.md), in workload mode, where each user runs a workload by itself, or in command mode, where a
// named user does what it is told; and it records what each of them did.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Options is what a client process is given.
type Options struct {
	Backends  []backends.Backend
	Workloads []workloads.Kind
	Resources []resource.Kind
	In        io.Reader // closed at the end where it is an io.Closer
	Out       io.Writer // the same
	Version   string    // of this software
	// Libraries are the modules, with their versions, that all locks of this software are made of.
	Libraries map[string]string
	// InProcess says that the client shares its process with others: it cannot be killed alone, and its processor time
	// cannot be told.
	InProcess bool
}

const (
	// grace is how long a client whose supervisor is gone waits for what it was doing. It must be gone within 2 s.
	grace = 1500 * time.Millisecond
	// dialTimeout bounds the connection to the service and to the resource, and the making of all lockers.
	dialTimeout = 30 * time.Second
	// closeTimeout bounds the closing of lockers and connections at the end.
	closeTimeout = 3 * time.Second
	// inbox is how many frames may wait while the client connects.
	inbox = 4096
)

// ErrSupervisorGone says that the standard input ended before a stop came.
var ErrSupervisorGone = errors.New("the control stream ended")

// Main is a client's life. It returns nil after a stop that was carried out. When In ends before that, or ctx does, it
// returns within 2 s whatever is going on; calls that do not end are left behind, so that the process should end too.
func Main(ctx context.Context, o Options) error {
	conn := wire.NewNodeConn(o.In, o.Out)
	life, end := context.WithCancelCause(ctx)
	defer closeStreams(o)
	defer end(nil)
	hello := wire.NewHello(wire.ProcessClient, o.Version)
	hello.Libraries = o.Libraries
	if err := conn.Send(wire.Frame{Type: wire.TypeHello, Hello: hello}); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	frames := make(chan *wire.Frame, inbox)
	go receive(conn, frames, end, life.Done())

	s := newSession(life, end, o, conn)
	finished := make(chan error, 1)
	go func() { finished <- s.run(frames) }()
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

// receive hands over frames until the input ends, which ends the client.
func receive(conn *wire.Conn, frames chan<- *wire.Frame, end context.CancelCauseFunc, over <-chan struct{}) {
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

func closeStreams(o Options) {
	for _, s := range []any{o.In, o.Out} {
		if c, ok := s.(io.Closer); ok {
			_ = c.Close() // the client is at its end
		}
	}
}
