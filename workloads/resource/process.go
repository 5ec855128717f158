package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// Options configures a resource's process.
type Options struct {
	In      io.Reader
	Out     io.Writer
	Version string // of this software

	// Listen is for the register, a replica and the object store: host:port. Port 0 takes a free port, which the
	// ready frame contains.
	Listen string
	// Sequencers connects to the lock service with start.access, for guards that ask it. If nil, such guards are
	// unavailable.
	Sequencers func(ctx context.Context, access json.RawMessage) (SequencerChecker, error)
}

// SequencerChecker is a connection to a lock service that can check sequencers.
type SequencerChecker interface {
	lock.SequencerChecker
	io.Closer
}

// Body is the work of a resource's process between its start and its end. Its methods are called one at a time.
type Body interface {
	// Start makes the resource ready. It returns the host:port for users if the process itself serves them.
	Start(ctx context.Context, s *wire.Start, rec *wire.Recorder) (address string, err error)
	// Final returns the final value under a lock. Every effect is recorded when it returns.
	Final(ctx context.Context, lock int) (Final, error)
	// Watched reports whether a stall of the process would delay the users.
	Watched() bool
	// Close stops serving.
	Close()
}

// Final is the final read of what one lock protects.
type Final struct {
	Value   int64
	Applied int64 // writes
	// Epoch and Number order a replica's values.
	Epoch  uint64
	Number int64
}

// Drive runs a resource's process under wire.Serve. name names the kind of process.
func Drive(ctx context.Context, o Options, name string, begin func(context.Context) (Body, error)) error {
	hello := wire.NewHello(wire.ProcessOwn+name, o.Version)
	return wire.Serve(ctx, o.In, o.Out, hello, func(life context.Context, end context.CancelCauseFunc,
		conn *wire.Conn,
	) (wire.Body, error) {
		b, err := begin(life)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &served{name: name, conn: conn, body: b, life: life, end: end}, nil
	})
}

// served is a resource's process as its supervisor sees it.
type served struct {
	name    string
	conn    *wire.Conn
	body    Body
	life    context.Context
	end     context.CancelCauseFunc
	rec     *wire.Recorder
	pulse   *wire.Pulse // nil if no user waits for this process
	started bool
	closed  bool // the recorder
}

// Handle carries out one frame; done is true after the stop.
func (n *served) Handle(f *wire.Frame) (done bool, err error) {
	switch {
	case f.Type == wire.TypeStart && !n.started:
		err = n.start(f.Start)
	case f.Type == wire.TypeCommand && n.started:
		err = n.command(f.Command)
	case f.Type == wire.TypeStop:
		return true, n.stop()
	case f.Type == wire.TypeGo:
	default:
		err = fmt.Errorf("frame %q has no place here", f.Type)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", n.name, err)
	}
	return false, err
}

// Abandon stops serving.
func (n *served) Abandon() { n.close() }

func (n *served) start(s *wire.Start) error {
	n.rec = wire.NewRecorder(n.conn, s.Format, s.Locks) // always: these events are the second witness
	if n.body.Watched() {
		n.pulse = wire.StartPulse(n.rec, 0, func(err error) { n.end(err) })
	}
	address, err := n.body.Start(n.life, s, n.rec)
	if err != nil {
		return err
	}
	n.started = true
	return n.conn.Send(wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{Address: address}})
}

func (n *served) command(c *wire.Command) error {
	r := wire.Result{ID: c.ID, Outcome: wire.OutcomeFail}
	if c.Do != wire.DoFinal {
		r.Error = fmt.Sprintf("unknown operation %q; a resource has %s", c.Do, wire.DoFinal)
	} else if f, err := n.body.Final(n.life, c.Lock); err != nil {
		r.Error = err.Error()
	} else {
		r.Outcome, r.Value, r.Count = wire.OutcomeOK, f.Value, f.Applied
		r.Epoch, r.Number = f.Epoch, f.Number
		n.rec.Flush()
	}
	return n.conn.Send(wire.Frame{Type: wire.TypeResult, Result: &r})
}

// stop stops serving, sends the remaining events, and reports the end.
func (n *served) stop() error {
	stall := n.close()
	recorded, dropped := n.rec.Counts()
	d := wire.Done{Recorded: recorded, Dropped: dropped, Stall: stall, CPU: wire.CPU()}
	return n.conn.Send(wire.Frame{Type: wire.TypeDone, Done: &d})
}

// close undoes start and returns the longest stall in ns.
func (n *served) close() (stall int64) {
	n.body.Close()
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
