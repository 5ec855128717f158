// Package resourcetest drives a resource's process as its supervisor does, for tests.
package resourcetest

import (
	"io"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
)

// Process is a resource's process as its supervisor sees it.
type Process struct {
	t       *testing.T
	Conn    *wire.Conn
	Stdin   io.Closer
	frames  chan *wire.Frame
	Events  []history.Event // without stalls and reasons
	Reasons []history.Event
	stalls  int
	Result  chan error
}

// Start starts any resource's process.
func Start(t *testing.T, main func(in io.Reader, out io.Writer) error) *Process {
	t.Helper()
	toNode, stdin := io.Pipe()
	stdout, fromNode := io.Pipe()
	r := &Process{
		t: t, Conn: wire.NewConn(stdout, stdin), Stdin: stdin, frames: make(chan *wire.Frame, 100),
		Result: make(chan error, 1),
	}
	go func() { r.Result <- main(toNode, fromNode) }()
	go func() {
		defer close(r.frames)
		for {
			item, err := r.Conn.Receive()
			if err != nil {
				return
			}
			for _, e := range item.Events {
				if e.Kind == history.Stall { // caused by other load on the machine
					r.stalls++
					continue
				}
				if e.Kind == history.Reason {
					r.Reasons = append(r.Reasons, e)
					continue
				}
				r.Events = append(r.Events, e)
			}
			if item.Frame != nil {
				r.frames <- item.Frame
			}
		}
	}()
	t.Cleanup(func() { _ = r.Conn.Close() })
	return r
}

// Send sends a frame.
func (r *Process) Send(f wire.Frame) {
	r.t.Helper()
	if err := r.Conn.Send(f); err != nil {
		r.t.Fatal(err)
	}
}

// patience ends a test whose process is silent.
const patience = time.Minute

// Frame returns the next frame, which must be of that kind.
func (r *Process) Frame(kind string) *wire.Frame {
	r.t.Helper()
	select {
	case f := <-r.frames:
		if f == nil || f.Type != kind {
			r.t.Fatalf("got %+v, want %s", f, kind)
		}
		return f
	case <-time.After(patience):
		r.t.Fatalf("no %s", kind)
		return nil
	}
}

// Stop ends the process; its log is complete then.
func (r *Process) Stop() wire.Done {
	r.t.Helper()
	r.Send(wire.Frame{Type: wire.TypeStop})
	d := r.Frame(wire.TypeDone).Done
	for range r.frames {
		r.t.Error("there is data after done")
	}
	if err := <-r.Result; err != nil {
		r.t.Error(err)
	}
	if int64(len(r.Events)+len(r.Reasons)+r.stalls) != d.Recorded {
		r.t.Errorf("%d events of %d came", len(r.Events)+len(r.Reasons)+r.stalls, d.Recorded)
	}
	return *d
}
