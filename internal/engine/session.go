package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wire"
)

// session is the control stream of one node that speaks the protocol: a client or a resource.
type session struct {
	node  *cluster.Node
	index int // of the client, from 0; -1 for a resource
	conn  *wire.Conn
	live  *live
	vigil *vigil
	log   *slog.Logger

	file     *history.Writer // nil until the clocks are compared
	sense    *history.Sense  // of what goes to the file
	offset   int64           // ns from the node's clock to the run's
	drift    drift           // how it was measured; zero where the clocks are one
	directed bool

	mu      sync.Mutex
	nextID  int
	waiting map[int]chan wire.Result
	hello   *wire.Hello
	done    *wire.Done
	err     error
	last    int64 // time of the last event that arrived
	pongs   chan wire.Pong
	pinging sync.Mutex // held while clocks are asked for
	pings   int        // ids of pings beyond those of measure
	ready   chan struct{}
	greeted chan struct{}
	ended   chan struct{} // the stream is read to its end
}

// errEnded says that a node's control stream ended before it answered.
var errEnded = errors.New("its control stream ended")

// openSession takes over the control stream of a running node.
func openSession(n *cluster.Node, index int, r *run) *session {
	s := &session{
		node: n, index: index, live: r.live, vigil: r.vigil, log: r.log.With("node", n.Name()), directed: len(r.plan.people) > 0,
		waiting: map[int]chan wire.Result{}, ready: make(chan struct{}), greeted: make(chan struct{}), ended: make(chan struct{}),
		pongs: make(chan wire.Pong, 1),
	}
	s.conn = wire.NewConn(n.Stdio().Out, n.Stdio().In)
	go s.read()
	return s
}

// record opens the file that the node's events go to. It must come before the node is told to start.
func (s *session) record(dir string, locks []string, d drift) error {
	h := history.Header{Process: s.node.Name(), Locks: locks, OffsetNS: d.offset, ErrorNS: d.err}
	f, err := history.Create(filepath.Join(dir, s.node.Name()+".lqh"), h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.sense, s.offset, s.drift = f, history.NewSense(h), d.offset, d
	return nil
}

// read takes what the node sends, to the end of the stream or to the first breach of what was agreed.
func (s *session) read() {
	defer close(s.ended)
	for {
		item, err := s.conn.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				s.fail(fmt.Errorf("%s: control stream: %w", s.node.Name(), err))
			}
			return
		}
		if len(item.Events) > 0 {
			if err := s.take(item.Events, item.Raw); err != nil {
				s.fail(err)
				return
			}
		}
		if item.Frame != nil {
			s.frame(item.Frame)
		}
	}
}

// take takes events. One that makes no sense is the last that is kept: the judge finds it there.
func (s *session) take(batch []history.Event, raw []byte) (refused error) {
	if s.file == nil {
		return fmt.Errorf("%s sent events before it was started", s.node.Name())
	}
	for i := range batch {
		if err := s.sense.Observe(&batch[i]); err != nil {
			batch, raw, refused = batch[:i+1], raw[:(i+1)*history.RecordSize], fmt.Errorf("%s: %w", s.node.Name(), err)
			break
		}
	}
	if err := s.file.AppendRecords(raw, &batch[len(batch)-1]); err != nil {
		return errors.Join(refused, fmt.Errorf("%s: history: %w", s.node.Name(), err))
	}
	if s.offset != 0 {
		for i := range batch {
			history.Shift(&batch[i], s.offset)
		}
	}
	s.mu.Lock()
	s.last = batch[len(batch)-1].Time
	s.mu.Unlock()
	switch {
	case s.index >= 0:
		s.live.observe(s.index, batch, s.directed)
		s.vigil.observe(batch)
	case s.directed:
		s.live.mark(batch...)
	}
	return refused
}

func (s *session) frame(f *wire.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.Type {
	case wire.TypeHello:
		if s.hello == nil {
			s.hello = f.Hello
			close(s.greeted)
		}
	case wire.TypeReady:
		select {
		case <-s.ready:
		default:
			close(s.ready)
		}
	case wire.TypeResult:
		if ch := s.waiting[f.Result.ID]; ch != nil {
			delete(s.waiting, f.Result.ID)
			ch <- *f.Result // buffered: one answer for each command
		}
	case wire.TypePong:
		select {
		case s.pongs <- *f.Pong:
		default: // an answer that nobody waits for any more
		}
	case wire.TypePoint:
		s.live.reached(s.index, *f.Point)
	case wire.TypeLog:
		s.log.Info(f.Log.Text, "level", f.Log.Level)
	case wire.TypeDone:
		s.done = f.Done
	case wire.TypeFailed:
		if s.err == nil {
			s.err = fmt.Errorf("%s: %s", s.node.Name(), f.Failed.Error)
		}
	}
}

func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// failure returns why the node cannot go on, or nil.
func (s *session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// refusal returns the failure that no fault explains: the node told what makes no sense.
func (s *session) refusal() error {
	var n *history.Nonsense
	if err := s.failure(); errors.As(err, &n) {
		return err
	}
	return nil
}

// await waits for one of the session's own channels.
func (s *session) await(ctx context.Context, ch <-chan struct{}, what string) error {
	select {
	case <-ch:
		return nil
	case <-s.ended:
		if err := s.failure(); err != nil {
			return err
		}
		return fmt.Errorf("%s: no %s: %w", s.node.Name(), what, errEnded)
	case <-ctx.Done():
		if err := s.failure(); err != nil {
			return err
		}
		return fmt.Errorf("%s: no %s: %w", s.node.Name(), what, context.Cause(ctx))
	}
}

// order sends a command and returns the channel on which its one answer comes.
func (s *session) order(c wire.Command) (<-chan wire.Result, error) {
	s.mu.Lock()
	s.nextID++
	c.ID = s.nextID
	ch := make(chan wire.Result, 1)
	s.waiting[c.ID] = ch
	s.mu.Unlock()
	return ch, s.conn.Send(wire.Frame{Type: wire.TypeCommand, Command: &c})
}

// ask sends a command and waits for its answer.
func (s *session) ask(ctx context.Context, c wire.Command) (wire.Result, error) {
	ch, err := s.order(c)
	if err != nil {
		return wire.Result{}, err
	}
	return s.answer(ctx, ch, c.Do)
}

func (s *session) answer(ctx context.Context, ch <-chan wire.Result, what string) (wire.Result, error) {
	select {
	case r := <-ch:
		return r, nil
	case <-s.ended:
		return wire.Result{}, fmt.Errorf("%s: %s: %w", s.node.Name(), what, errEnded)
	case <-ctx.Done():
		return wire.Result{}, fmt.Errorf("%s: %s: %w", s.node.Name(), what, context.Cause(ctx))
	}
}

// stop asks the node to finish and waits until its stream has ended.
func (s *session) stop(ctx context.Context) error {
	if err := s.conn.Send(wire.Frame{Type: wire.TypeStop}); err != nil && s.node.Running() {
		return fmt.Errorf("%s: stop: %w", s.node.Name(), err)
	}
	select {
	case <-s.ended:
		return nil // where it failed, its last word says so
	case <-ctx.Done():
		return fmt.Errorf("%s did not end: %w", s.node.Name(), context.Cause(ctx))
	}
}

// greeting returns the node's first word, or nil when it never came.
func (s *session) greeting() *wire.Hello {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

// finished returns the node's last word, or nil when it ended without one.
func (s *session) finished() *wire.Done {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// heardAt returns the time of the last event that arrived, which the node was certainly alive to send.
func (s *session) heardAt() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// close ends the control stream and writes the trailer of the history file. The stream must have been read to its end.
func (s *session) close() error {
	_ = s.conn.Close() // the node has closed its end already: nothing is lost
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
