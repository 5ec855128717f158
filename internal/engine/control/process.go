// Package control holds the nodes that speak the protocol over a control stream: the clients of a run, and its
// resource.
package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/wire"
)

// Process is a node that speaks the protocol over its control stream: a client or a resource.
type Process struct {
	Node  *cluster.Node
	index int // of the client, from 0; -1 for a resource
	conn  *wire.Conn
	Clock *watch.Clock
	live  *live.Table
	watch *watch.Sessions // nil if no grant lasts as long as a session
	log   *slog.Logger

	told func(batch []history.Event) // gets a client's events, beside the live table; may be nil

	started  atomic.Int64    // when its start frame was sent
	File     *history.Writer // nil until the clocks are compared
	sense    *history.Sense  // of what goes to the file
	directed bool
	died     bool // seen dead, or killed by a fault or at a point; set by the watcher that records the death

	mu      sync.Mutex
	nextID  int
	waiting map[int]chan wire.Result
	users   int         // of its workload; 0: it carries out orders
	ordered map[int]int // acquires that its users were ordered and have not begun
	talk    int         // unsolicited frames
	hello   *wire.Hello
	done    *wire.Done
	err     error
	last    int64 // time of the last event that arrived
	events  int64 // that arrived
	ready   chan struct{}
	greeted chan struct{}
	ended   chan struct{} // the stream is read to its end
}

func newProcess(n *cluster.Node, index int, l *live.Table, conn *wire.Conn) *Process {
	s := &Process{
		Node: n, index: index, live: l, conn: conn, waiting: map[int]chan wire.Result{}, ordered: map[int]int{},
		ready: make(chan struct{}), greeted: make(chan struct{}), ended: make(chan struct{}),
	}
	s.Clock = watch.NewClock(n.Name(), conn, s.ended)
	return s
}

// Hello returns a node's hello, and closes its stream.
func Hello(ctx context.Context, n *cluster.Node, index int, log *slog.Logger) (*wire.Hello, error) {
	s := newProcess(n, index, live.New(), wire.NewConn(n.Process.Stdio().Out, n.Process.Stdio().In))
	s.log = log
	go s.read()
	err := s.await(ctx, s.greeted, "hello")
	_ = s.conn.Close()
	if err != nil {
		return nil, err
	}
	return s.greeting(), nil
}

// expect notes what a start frame asks of the node. Call it before sending the frame.
func (s *Process) expect(st *wire.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.Workload != nil {
		s.users = st.Workload.Users
	}
	s.started.Store(clock.Now())
}

// record opens the file for the node's events. Call it before the node gets its start frame.
func (s *Process) record(dir string, p *plan.Plan) error {
	rules := p.Rules()
	h := history.Header{
		Process: s.Node.Name(), Locks: p.Locks, Exclusive: rules.Exclusive, Reentrant: rules.Reentrant,
		LeaseNS: p.Programs.Lease(p.Lock, p.Scenario.Backend.TTL),
	}
	if s.Clock.Separate() {
		now := s.Clock.Own(clock.Now())
		h.OffsetNS = s.Clock.Run(now) - now
		h.ErrorNS = s.Clock.Error(now + h.OffsetNS)
	}
	f, err := history.Create(filepath.Join(dir, s.Node.Name()+".lqh"), h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.File, s.sense = f, history.NewSense(h)
	return nil
}

// read handles what the node sends, until the end of the stream or the first violation of the protocol.
func (s *Process) read() {
	defer close(s.ended)
	for {
		item, err := s.conn.Receive()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				s.fail(fmt.Errorf("%s: control stream: %w", s.Node.Name(), err))
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
			if err := s.frame(item.Frame); err != nil {
				s.fail(fmt.Errorf("%s: %w: %w", s.Node.Name(), wire.ErrProtocol, err))
				return
			}
		}
	}
}

// take handles events. An event that makes no sense is the last that is kept: the judge finds it there.
func (s *Process) take(batch []history.Event, raw []byte) (refused error) {
	if s.File == nil {
		return fmt.Errorf("%s sent events before it was started", s.Node.Name())
	}
	for i := range batch {
		err := s.sense.Observe(&batch[i])
		if err == nil {
			err = s.unasked(&batch[i])
		}
		if err != nil {
			batch, raw, refused = batch[:i+1], raw[:(i+1)*history.RecordSize], fmt.Errorf("%s: %w", s.Node.Name(), err)
			break
		}
	}
	if refused == nil {
		refused = s.punctual(batch)
	}
	if err := s.File.AppendRecords(raw, &batch[len(batch)-1]); err != nil {
		return errors.Join(refused, fmt.Errorf("%s: history: %w", s.Node.Name(), err))
	}
	if s.Clock.Separate() {
		for i := range batch {
			history.Shift(&batch[i], s.Clock)
		}
	}
	s.mu.Lock()
	s.last, s.events = batch[len(batch)-1].Time, s.events+int64(len(batch))
	s.mu.Unlock()
	switch {
	case s.index >= 0:
		s.live.Observe(s.index, batch, s.directed)
		s.watch.Observe(batch)
		if s.told != nil {
			s.told(batch)
		}
	case s.directed:
		s.live.Mark(batch...)
	}
	return refused
}

// unasked rejects an acquire that was not requested: by a user that the workload does not have, or, without a
// workload, one without an order.
func (s *Process) unasked(e *history.Event) error {
	if s.index < 0 || e.Kind != history.Acquire || e.Phase != history.Invoke {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	user := e.User.Index()
	if s.ordered[user]--; user < s.users || s.users == 0 && s.ordered[user] >= 0 {
		return nil
	}
	return fmt.Errorf("%w: event %d (acquire invoke of %v): there was no such order", wire.ErrProtocol, e.Seq, e.User)
}

// punctual rejects events with impossible times: before the start frame was sent, or after the events arrived. If a
// client's clock is not the one that its hello names, its holds would be moved apart and no longer overlap.
func (s *Process) punctual(batch []history.Event) error {
	first, last := &batch[0], &batch[len(batch)-1]
	from, until := s.Clock.Run(first.Time), s.Clock.Run(last.Time)
	early, late := s.started.Load()-from, until-clock.Now()
	room := int64(watch.ClockRoom) + max(s.Clock.Error(from), s.Clock.Error(until))
	switch {
	case early > room:
		return fmt.Errorf("%s: event %d is stamped %v before the start frame was sent: its clock is not the one in its hello",
			s.Node.Name(), first.Seq, time.Duration(early))
	case late > room:
		return fmt.Errorf("%s: event %d is stamped %v later than its arrival: its clock is not the one in its hello",
			s.Node.Name(), last.Seq, time.Duration(late))
	}
	return nil
}

// MaxTalk bounds the unsolicited frames of a process, such as its log lines.
const MaxTalk = 10_000

// frame handles a frame, or rejects it.
func (s *Process) frame(f *wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := true
	switch f.Type {
	case wire.TypeHello:
		if h := s.hello; h != nil {
			return fmt.Errorf("hello: a second one, of %q (pid %d), after that of %q (pid %d): two processes claim to be %s",
				f.Hello.Process, f.Hello.PID, h.Process, h.PID, s.Node.Name())
		}
		s.hello = f.Hello
		close(s.greeted)
	case wire.TypeReady:
		select {
		case <-s.ready:
			asked = false
		default:
			close(s.ready)
		}
	case wire.TypeResult:
		ch := s.waiting[f.Result.ID]
		if ch == nil {
			return fmt.Errorf("result: its id is %d, but no order waits for it", f.Result.ID)
		}
		delete(s.waiting, f.Result.ID)
		ch <- *f.Result // buffered: one answer for each command
	case wire.TypePong:
		asked = s.Clock.Heard(*f.Pong)
	case wire.TypePoint:
		s.live.Reached(s.index, *f.Point)
	case wire.TypeLog:
		asked = false
		s.log.Info(f.Log.Text, "level", f.Log.Level)
	case wire.TypeDone:
		s.done = f.Done
	case wire.TypeFailed:
		if s.err == nil {
			s.err = fmt.Errorf("%s: %s", s.Node.Name(), f.Failed.Error)
		}
	}
	if !asked {
		s.talk++
	}
	if s.talk > MaxTalk {
		return fmt.Errorf("%s: more than %d unexpected frames", f.Type, MaxTalk)
	}
	return nil
}

func (s *Process) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// failure returns why the node cannot go on, or nil.
func (s *Process) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// refusal returns a failure that no fault explains: the node broke the protocol, or sent events that contradict each
// other.
func (s *Process) refusal() error {
	var n *history.Nonsense
	if err := s.failure(); errors.As(err, &n) || errors.Is(err, wire.ErrProtocol) {
		return err
	}
	return nil
}

// await waits for one of the process's own channels.
func (s *Process) await(ctx context.Context, ch <-chan struct{}, what string) error {
	select {
	case <-ch:
		return nil
	case <-s.ended:
		if err := s.failure(); err != nil {
			return err
		}
		return fmt.Errorf("%s: no %s: %w", s.Node.Name(), what, watch.ErrEnded)
	case <-ctx.Done():
		if err := s.failure(); err != nil {
			return err
		}
		return fmt.Errorf("%s: no %s: %w", s.Node.Name(), what, context.Cause(ctx))
	}
}

// Order sends a command and returns the channel for its one answer.
func (s *Process) Order(c wire.Command) (<-chan wire.Result, error) {
	s.mu.Lock()
	s.nextID++
	c.ID = s.nextID
	ch := make(chan wire.Result, 1)
	s.waiting[c.ID] = ch
	if c.Do == wire.DoAcquire || c.Do == wire.DoReenter {
		s.ordered[c.User]++
	}
	s.mu.Unlock()
	return ch, s.conn.Send(wire.Frame{Type: wire.TypeCommand, Command: &c})
}

// Ask sends a command and waits for its answer.
func (s *Process) Ask(ctx context.Context, c wire.Command) (wire.Result, error) {
	ch, err := s.Order(c)
	if err != nil {
		return wire.Result{}, err
	}
	return s.Answer(ctx, ch, c.Do)
}

// Answer waits for the answer to an order; what names the order.
func (s *Process) Answer(ctx context.Context, ch <-chan wire.Result, what string) (wire.Result, error) {
	select {
	case r := <-ch:
		return r, nil
	case <-s.ended:
		return wire.Result{}, fmt.Errorf("%s: %s: %w", s.Node.Name(), what, watch.ErrEnded)
	case <-ctx.Done():
		return wire.Result{}, fmt.Errorf("%s: %s: %w", s.Node.Name(), what, context.Cause(ctx))
	}
}

// stop asks the node to finish and waits until its stream has ended.
func (s *Process) stop(ctx context.Context) error {
	if err := s.conn.Send(wire.Frame{Type: wire.TypeStop}); err != nil && s.Node.Process.Running() {
		return fmt.Errorf("%s: stop: %w", s.Node.Name(), err)
	}
	select {
	case <-s.ended:
		return nil // if it failed, one of its frames says so
	case <-ctx.Done():
		return fmt.Errorf("%s did not end: %w", s.Node.Name(), context.Cause(ctx))
	}
}

// endedBy reports whether the stream is read to its end before ctx is over.
func (s *Process) endedBy(ctx context.Context) bool {
	select {
	case <-s.ended:
		return true
	case <-ctx.Done():
	}
	select { // both may be: another stream may have taken the time
	case <-s.ended:
		return true
	default:
		return false
	}
}

// greeting returns the node's hello frame, or nil when none came.
func (s *Process) greeting() *wire.Hello {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

// finished returns the node's done frame, or nil when it ended without one.
func (s *Process) finished() *wire.Done {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// heard returns how many events arrived, and the time of the last one: the node was certainly alive then.
func (s *Process) heard() (events, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events, s.last
}

// close ends the control stream and writes the trailer of the history file. The stream must have been read to its
// end.
func (s *Process) close() error {
	_ = s.conn.Close() // the node has closed its end already: nothing is lost
	if s.File == nil {
		return nil
	}
	return s.File.Close()
}
