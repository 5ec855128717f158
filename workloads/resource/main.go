package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// Options is what the register's process is given.
type Options struct {
	Listen  string // host:port; port 0 takes a free one, which the ready frame tells
	In      io.Reader
	Out     io.Writer
	Version string // of this software
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

// Main is the register's process: it speaks the protocol of docs/protocol.md on In and Out, which it closes at its end
// where they are io.Closers, and serves users until it is told to stop, ctx ends, or In does.
func Main(ctx context.Context, o Options) error {
	conn := wire.NewNodeConn(o.In, o.Out)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer closeBoth(o)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		err = fmt.Errorf("register: %w", err)
		return errors.Join(err, conn.Send(wire.Frame{Type: wire.TypeFailed, Failed: &wire.Failed{Error: err.Error()}}))
	}
	defer listener.Close()
	if err := conn.Send(wire.Frame{Type: wire.TypeHello, Hello: wire.NewHello("lockquake register", o.Version)}); err != nil {
		return err
	}
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
	n := &node{o: o, conn: conn, listener: listener, cancel: cancel}
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

func closeBoth(o Options) {
	for _, s := range []any{o.In, o.Out} {
		if c, ok := s.(io.Closer); ok {
			_ = c.Close() // the process ends
		}
	}
}

// node is the register as its supervisor sees it.
type node struct {
	o        Options
	conn     *wire.Conn
	listener net.Listener
	cancel   context.CancelCauseFunc
	rec      *wire.Recorder
	pulse    *wire.Pulse
	server   *server
	asked    SequencerChecker // nil but for GuardSequencer
}

// handle carries out one frame; done is true after the stop.
func (n *node) handle(ctx context.Context, f *wire.Frame) (done bool, err error) {
	switch {
	case f.Type == wire.TypeStart && n.server == nil:
		return false, n.start(ctx, f.Start)
	case f.Type == wire.TypeCommand && n.server != nil:
		return false, n.command(f.Command)
	case f.Type == wire.TypeStop:
		return true, n.stop()
	case f.Type == wire.TypeGo:
		return false, nil
	}
	return false, n.fail(fmt.Errorf("register: frame %q has no place here", f.Type))
}

func (n *node) fail(err error) error {
	n.close()
	return errors.Join(err, n.conn.Send(wire.Frame{Type: wire.TypeFailed, Failed: &wire.Failed{Error: err.Error()}}))
}

func (n *node) start(ctx context.Context, s *wire.Start) error {
	rec := wire.NewRecorder(n.conn, s.Format, s.Locks) // always: these events are the second witness
	st, err := newStore(s.Guard, s.Locks, func(e *history.Event) { rec.Append(e) })
	n.rec = rec
	n.pulse = wire.StartPulse(rec, 0, wire.StallFrom(time.Duration(s.TTL)), func(err error) { n.cancel(err) })
	if err != nil {
		return n.fail(err)
	}
	if s.Guard == GuardSequencer {
		if err := n.connect(ctx, s); err != nil {
			return n.fail(err)
		}
		st.ask = n.asked
	}
	n.server = serve(ctx, n.listener, st)
	return n.conn.Send(wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{Address: n.listener.Addr().String()}})
}

// connect makes the register a client of the lock service.
func (n *node) connect(ctx context.Context, s *wire.Start) (err error) {
	if n.o.Sequencers == nil || len(s.Access) == 0 {
		return fmt.Errorf("register: guard %s asks the lock service, and nobody said how to reach it", s.Guard)
	}
	if n.asked, err = n.o.Sequencers(ctx, s.Access); err != nil {
		return fmt.Errorf("register: guard %s: %w", s.Guard, err)
	}
	return nil
}

func (n *node) command(c *wire.Command) error {
	r := wire.Result{ID: c.ID, Outcome: wire.OutcomeFail}
	if c.Do != wire.DoFinal {
		r.Error = fmt.Sprintf("a resource does not know %q; it knows %s", c.Do, wire.DoFinal)
	} else if value, applied, err := n.server.store.final(c.Lock); err != nil {
		r.Error = err.Error()
	} else {
		r.Outcome, r.Value, r.Count = wire.OutcomeOK, value, applied
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
	if n.server != nil {
		n.server.close()
		n.server = nil
	}
	if n.asked != nil {
		_ = n.asked.Close() // nothing is asked any more
		n.asked = nil
	}
	if n.pulse != nil {
		stall = n.pulse.Stop()
		n.pulse = nil
		_ = n.rec.Close() // a broken stream shows at the next send
	}
	return stall
}
