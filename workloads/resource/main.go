package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// Options is what a resource's process is given.
type Options struct {
	In      io.Reader
	Out     io.Writer
	Version string // of this software

	// Listen is for the register and for a replica: host:port; port 0 takes a free one, which the ready frame tells.
	Listen string
	// Sequencers connects to the lock service as start.access tells, for GuardSequencer; nil: that guard is not to be had.
	Sequencers func(ctx context.Context, access json.RawMessage) (SequencerChecker, error)
}

// SequencerChecker is a connection to a lock service that can be asked about sequencers.
type SequencerChecker interface {
	lock.SequencerChecker
	io.Closer
}

// ErrSupervisorGone says that the standard input ended before a stop came.
var ErrSupervisorGone = errors.New("the control stream ended")

// body is what a resource's process does between its start and its end. Its methods are called one at a time.
type body interface {
	// start makes the resource ready and returns the host:port that users reach it at, where it is the process's own.
	start(ctx context.Context, s *wire.Start, rec *wire.Recorder) (address string, err error)
	// final returns what a lock protects at the end. Every effect is recorded when it returns.
	final(ctx context.Context, lock int) (final, error)
	// watched tells whether a stall of the process would hold back the users.
	watched() bool
	// close serves nobody any more.
	close()
}

// final is the final read of what one lock protects.
type final struct {
	value   int64
	applied int64 // writes
	stamp   stamp // of a replica: when the value was put down
}

// Main is the register's process: it speaks the protocol of docs/protocol.md on In and Out, which it closes at its end
// where they are io.Closers, and serves users until it is told to stop, ctx ends, or In does.
func Main(ctx context.Context, o Options) error {
	return drive(ctx, o, "register", func(ctx context.Context) (body, error) { return newRegister(ctx, o) })
}

// Ledger is the process beside a resource that is a real service: it lays out the store, and at the end tells the supervisor
// what the store's own log says. It lives and ends as Main does.
func Ledger(ctx context.Context, o Options, kind string) error {
	return drive(ctx, o, "ledger", func(context.Context) (body, error) {
		k, ok := Find(Kinds(), kind)
		if !ok || k.book == nil {
			return nil, fmt.Errorf("no ledger is kept of resource %q", kind)
		}
		return &ledger{book: k.book()}, nil
	})
}

// drive follows the supervisor's frames.
func drive(ctx context.Context, o Options, name string, make func(context.Context) (body, error)) error {
	conn := wire.NewNodeConn(o.In, o.Out)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer closeBoth(o)
	b, err := make(ctx)
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
		return errors.Join(err, conn.Send(wire.Frame{Type: wire.TypeFailed, Failed: &wire.Failed{Error: err.Error()}}))
	}
	n := &node{name: name, conn: conn, body: b, cancel: cancel}
	defer b.close()
	if err := conn.Send(wire.Frame{Type: wire.TypeHello, Hello: wire.NewHello(wire.ProcessOwn+name, o.Version)}); err != nil {
		return err
	}
	frames := receive(ctx, conn, cancel)
	for {
		select {
		case <-ctx.Done():
			n.close()
			return context.Cause(ctx)
		case f := <-frames:
			if f == nil {
				continue // events make no sense here
			}
			if done, err := n.handle(ctx, f); done || err != nil {
				return err
			}
		}
	}
}

// receive reads frames until the input ends, which ends the process.
func receive(ctx context.Context, conn *wire.Conn, cancel context.CancelCauseFunc) <-chan *wire.Frame {
	frames := make(chan *wire.Frame)
	go func() {
		for {
			item, err := conn.Receive()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = ErrSupervisorGone
				}
				cancel(err)
				return
			}
			select {
			case frames <- item.Frame:
			case <-ctx.Done():
				return
			}
		}
	}()
	return frames
}

func closeBoth(o Options) {
	for _, s := range []any{o.In, o.Out} {
		if c, ok := s.(io.Closer); ok {
			_ = c.Close() // the process ends
		}
	}
}

// node is a resource's process as its supervisor sees it.
type node struct {
	name    string
	conn    *wire.Conn
	body    body
	cancel  context.CancelCauseFunc
	rec     *wire.Recorder
	pulse   *wire.Pulse // nil where nobody waits for this process
	started bool
	closed  bool // the recorder
}

// handle carries out one frame; done is true after the stop.
func (n *node) handle(ctx context.Context, f *wire.Frame) (done bool, err error) {
	switch {
	case f.Type == wire.TypeStart && !n.started:
		return false, n.start(ctx, f.Start)
	case f.Type == wire.TypeCommand && n.started:
		return false, n.command(ctx, f.Command)
	case f.Type == wire.TypeStop:
		return true, n.stop()
	case f.Type == wire.TypeGo:
		return false, nil
	}
	return false, n.fail(fmt.Errorf("frame %q has no place here", f.Type))
}

func (n *node) fail(err error) error {
	n.close()
	err = fmt.Errorf("%s: %w", n.name, err)
	return errors.Join(err, n.conn.Send(wire.Frame{Type: wire.TypeFailed, Failed: &wire.Failed{Error: err.Error()}}))
}

func (n *node) start(ctx context.Context, s *wire.Start) error {
	n.rec = wire.NewRecorder(n.conn, s.Format, s.Locks) // always: these events are the second witness
	if n.body.watched() {
		n.pulse = wire.StartPulse(n.rec, 0, func(err error) { n.cancel(err) })
	}
	address, err := n.body.start(ctx, s, n.rec)
	if err != nil {
		return n.fail(err)
	}
	n.started = true
	return n.conn.Send(wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{Address: address}})
}

func (n *node) command(ctx context.Context, c *wire.Command) error {
	r := wire.Result{ID: c.ID, Outcome: wire.OutcomeFail}
	if c.Do != wire.DoFinal {
		r.Error = fmt.Sprintf("a resource does not know %q; it knows %s", c.Do, wire.DoFinal)
	} else if f, err := n.body.final(ctx, c.Lock); err != nil {
		r.Error = err.Error()
	} else {
		r.Outcome, r.Value, r.Count = wire.OutcomeOK, f.value, f.applied
		r.Epoch, r.Number = f.stamp.Epoch, f.stamp.Number
		n.rec.Flush()
	}
	return n.conn.Send(wire.Frame{Type: wire.TypeResult, Result: &r})
}

// stop serves nobody any more, sends what is left, and says so.
func (n *node) stop() error {
	stall := n.close()
	recorded, dropped := n.rec.Counts()
	d := wire.Done{Recorded: recorded, Dropped: dropped, Stall: stall, CPU: wire.CPU()}
	return n.conn.Send(wire.Frame{Type: wire.TypeDone, Done: &d})
}

// close ends what start began and returns the longest stall in ns.
func (n *node) close() (stall int64) {
	n.body.close()
	if n.pulse != nil {
		stall = n.pulse.Stop()
		n.pulse = nil
	}
	if n.rec != nil && !n.closed {
		n.closed = true
		_ = n.rec.Close() // a broken stream shows at the next send
	}
	return stall
}
