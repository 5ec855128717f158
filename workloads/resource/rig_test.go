package resource

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
)

// running is the register as its supervisor sees it.
type running struct {
	t       *testing.T
	conn    *wire.Conn
	stdin   io.Closer
	frames  chan *wire.Frame
	events  []history.Event // but stalls
	stalls  int
	result  chan error
	address string
	guard   string
}

func launch(t *testing.T, listen string, more ...func(*Options)) *running {
	t.Helper()
	return process(t, func(in io.Reader, out io.Writer) error {
		o := Options{Listen: listen, In: in, Out: out, Version: "test"}
		for _, m := range more {
			m(&o)
		}
		return Main(context.Background(), o)
	})
}

// process starts a resource's process, whatever it is.
func process(t *testing.T, main func(in io.Reader, out io.Writer) error) *running {
	t.Helper()
	toNode, stdin := io.Pipe()
	stdout, fromNode := io.Pipe()
	r := &running{t: t, conn: wire.NewConn(stdout, stdin), stdin: stdin, frames: make(chan *wire.Frame, 100), result: make(chan error, 1)}
	go func() { r.result <- main(toNode, fromNode) }()
	go func() {
		defer close(r.frames)
		for {
			item, err := r.conn.Receive()
			if err != nil {
				return
			}
			for _, e := range item.Events {
				if e.Kind == history.Stall { // a loud machine
					r.stalls++
					continue
				}
				r.events = append(r.events, e)
			}
			if item.Frame != nil {
				r.frames <- item.Frame
			}
		}
	}()
	t.Cleanup(func() { _ = r.conn.Close() })
	return r
}

func start(t *testing.T, guard string, more ...func(*Options)) *running {
	t.Helper()
	r := launch(t, "127.0.0.1:0", more...)
	r.guard = guard
	r.frame(wire.TypeHello)
	r.send(wire.Frame{Type: wire.TypeStart, Start: &wire.Start{
		Name: "register", Index: -1, Format: wire.FormatRecords, Locks: []string{"lock-0", "lock-1"}, Guard: guard, Record: true, Access: []byte(`{"run":"x"}`),
	}})
	r.address = r.frame(wire.TypeReady).Ready.Address
	return r
}

func (r *running) send(f wire.Frame) {
	r.t.Helper()
	if err := r.conn.Send(f); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) frame(kind string) *wire.Frame {
	r.t.Helper()
	select {
	case f := <-r.frames:
		if f == nil || f.Type != kind {
			r.t.Fatalf("got %+v, want %s", f, kind)
		}
		return f
	case <-time.After(10 * time.Second):
		r.t.Fatalf("no %s", kind)
		return nil
	}
}

// stop ends the register; its log is whole then.
func (r *running) stop() wire.Done {
	r.t.Helper()
	r.send(wire.Frame{Type: wire.TypeStop})
	d := r.frame(wire.TypeDone).Done
	for range r.frames {
		r.t.Error("there is something behind done")
	}
	if err := <-r.result; err != nil {
		r.t.Error(err)
	}
	if int64(len(r.events)+r.stalls) != d.Recorded {
		r.t.Errorf("%d events of %d came", len(r.events)+r.stalls, d.Recorded)
	}
	return *d
}

func (r *running) dial() Connection {
	r.t.Helper()
	c, err := register.Dial(r.t.Context(), Target{Address: r.address, Guard: r.guard})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}
