package engine

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

// process is a node that speaks the protocol over its control stream: a client or a resource.
type process struct {
	node  *cluster.Node
	index int // of the client, from 0; -1 for a resource
	conn  *wire.Conn
	clock *watch.Clock
	live  *live.Table
	watch *watch.Sessions // nil where no grant lasts as long as a session
	log   *slog.Logger

	told func(batch []history.Event) // of a client's events, beside the live table; nil: nobody asked

	started  atomic.Int64    // when it was told to start
	file     *history.Writer // nil until the clocks are compared
	sense    *history.Sense  // of what goes to the file
	directed bool
	died     bool // its process was seen dead, or a fault or a point killed it; the watcher of its death writes that

	mu      sync.Mutex
	nextID  int
	waiting map[int]chan wire.Result
	users   int         // of its workload; 0: it takes orders
	ordered map[int]int // acquires that its users were ordered and have not begun
	talk    int         // frames that nobody asked for
	hello   *wire.Hello
	done    *wire.Done
	err     error
	last    int64 // time of the last event that arrived
	events  int64 // that arrived
	ready   chan struct{}
	greeted chan struct{}
	ended   chan struct{} // the stream is read to its end
}

func newProcess(n *cluster.Node, index int, l *live.Table, conn *wire.Conn) *process {
	s := &process{
		node: n, index: index, live: l, conn: conn, waiting: map[int]chan wire.Result{}, ordered: map[int]int{},
		ready: make(chan struct{}), greeted: make(chan struct{}), ended: make(chan struct{}),
	}
	s.clock = watch.NewClock(n.Name(), conn, s.ended)
	return s
}

// expect notes what a start frame asks of the node. It must come before that is sent.
func (s *process) expect(st *wire.Start) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.Workload != nil {
		s.users = st.Workload.Users
	}
	s.started.Store(clock.Now())
}

// record opens the file that the node's events go to. It must come before the node is told to start.
func (s *process) record(dir string, p *plan.Plan) error {
	h := history.Header{
		Process: s.node.Name(), Locks: p.Locks, Exclusive: p.Exclusive(),
		LeaseNS: p.Programs.Lease(p.Lock, p.Scenario.Backend.TTL),
	}
	if s.clock.Separate() {
		now := s.clock.Own(clock.Now())
		h.OffsetNS = s.clock.Run(now) - now
		h.ErrorNS = s.clock.Error(now + h.OffsetNS)
	}
	f, err := history.Create(filepath.Join(dir, s.node.Name()+".lqh"), h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.sense = f, history.NewSense(h)
	return nil
}

// read takes what the node sends, to the end of the stream or to the first violation of the protocol.
func (s *process) read() {
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
			if err := s.frame(item.Frame); err != nil {
				s.fail(fmt.Errorf("%s: %w: %w", s.node.Name(), wire.ErrProtocol, err))
				return
			}
		}
	}
}

// take takes events. One that makes no sense is the last that is kept: the judge finds it there.
func (s *process) take(batch []history.Event, raw []byte) (refused error) {
	if s.file == nil {
		return fmt.Errorf("%s sent events before it was started", s.node.Name())
	}
	for i := range batch {
		err := s.sense.Observe(&batch[i])
		if err == nil {
			err = s.unasked(&batch[i])
		}
		if err != nil {
			batch, raw, refused = batch[:i+1], raw[:(i+1)*history.RecordSize], fmt.Errorf("%s: %w", s.node.Name(), err)
			break
		}
	}
	if refused == nil {
		refused = s.punctual(batch)
	}
	if err := s.file.AppendRecords(raw, &batch[len(batch)-1]); err != nil {
		return errors.Join(refused, fmt.Errorf("%s: history: %w", s.node.Name(), err))
	}
	if s.clock.Separate() {
		for i := range batch {
			history.Shift(&batch[i], s.clock)
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

// unasked refuses an acquire that nobody asked for: of a user that the workload does not have, or, where there is none,
// without an order.
func (s *process) unasked(e *history.Event) error {
	if s.index < 0 || e.Kind != history.Acquire || e.Phase != history.Invoke {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	user := e.User.Index()
	if s.ordered[user]--; user < s.users || s.users == 0 && s.ordered[user] >= 0 {
		return nil
	}
	return fmt.Errorf("%w: event %d (acquire invoke of %v): nobody asked for it", wire.ErrProtocol, e.Seq, e.User)
}

// punctual refuses events of times that cannot be: before the process was told to start, or after they came. A client
// whose clock is not the one that its hello says would move its holds out of each other's way.
func (s *process) punctual(batch []history.Event) error {
	first, last := &batch[0], &batch[len(batch)-1]
	from, until := s.clock.Run(first.Time), s.clock.Run(last.Time)
	early, late := s.started.Load()-from, until-clock.Now()
	room := int64(watch.ClockRoom) + max(s.clock.Error(from), s.clock.Error(until))
	switch {
	case early > room:
		return fmt.Errorf("%s: event %d has a time that was %v before the start frame was sent: its clock is not the one that its hello says",
			s.node.Name(), first.Seq, time.Duration(early))
	case late > room:
		return fmt.Errorf("%s: event %d has a time that was %v to come when it arrived: its clock is not the one that its hello says",
			s.node.Name(), last.Seq, time.Duration(late))
	}
	return nil
}

// maxTalk bounds the frames of a process that nobody asked for, such as what it logs.
const maxTalk = 10_000

// frame takes a frame, or refuses it.
func (s *process) frame(f *wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := true
	switch f.Type {
	case wire.TypeHello:
		if h := s.hello; h != nil {
			return fmt.Errorf("hello: a second one, of %q (pid %d), after that of %q (pid %d): what two processes do that say that they are %s cannot be told apart",
				f.Hello.Process, f.Hello.PID, h.Process, h.PID, s.node.Name())
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
			return fmt.Errorf("result: its id is %d, and no order waits for it", f.Result.ID)
		}
		delete(s.waiting, f.Result.ID)
		ch <- *f.Result // buffered: one answer for each command
	case wire.TypePong:
		asked = s.clock.Heard(*f.Pong)
	case wire.TypePoint:
		s.live.Reached(s.index, *f.Point)
	case wire.TypeLog:
		asked = false
		s.log.Info(f.Log.Text, "level", f.Log.Level)
	case wire.TypeDone:
		s.done = f.Done
	case wire.TypeFailed:
		if s.err == nil {
			s.err = fmt.Errorf("%s: %s", s.node.Name(), f.Failed.Error)
		}
	}
	if !asked {
		s.talk++
	}
	if s.talk > maxTalk {
		return fmt.Errorf("%s: more than %d frames that nobody asked for", f.Type, maxTalk)
	}
	return nil
}

func (s *process) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// failure returns why the node cannot go on, or nil.
func (s *process) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// refusal returns the failure that no fault explains: the node sent what breaks the protocol, or events that contradict
// each other.
func (s *process) refusal() error {
	var n *history.Nonsense
	if err := s.failure(); errors.As(err, &n) || errors.Is(err, wire.ErrProtocol) {
		return err
	}
	return nil
}

// await waits for one of the process's own channels.
func (s *process) await(ctx context.Context, ch <-chan struct{}, what string) error {
	select {
	case <-ch:
		return nil
	case <-s.ended:
		if err := s.failure(); err != nil {
			return err
		}
		return fmt.Errorf("%s: no %s: %w", s.node.Name(), what, watch.ErrEnded)
	case <-ctx.Done():
		if err := s.failure(); err != nil {
			return err
		}
		return fmt.Errorf("%s: no %s: %w", s.node.Name(), what, context.Cause(ctx))
	}
}

// order sends a command and returns the channel on which its one answer comes.
func (s *process) order(c wire.Command) (<-chan wire.Result, error) {
	s.mu.Lock()
	s.nextID++
	c.ID = s.nextID
	ch := make(chan wire.Result, 1)
	s.waiting[c.ID] = ch
	if c.Do == wire.DoAcquire {
		s.ordered[c.User]++
	}
	s.mu.Unlock()
	return ch, s.conn.Send(wire.Frame{Type: wire.TypeCommand, Command: &c})
}

// ask sends a command and waits for its answer.
func (s *process) ask(ctx context.Context, c wire.Command) (wire.Result, error) {
	ch, err := s.order(c)
	if err != nil {
		return wire.Result{}, err
	}
	return s.answer(ctx, ch, c.Do)
}

func (s *process) answer(ctx context.Context, ch <-chan wire.Result, what string) (wire.Result, error) {
	select {
	case r := <-ch:
		return r, nil
	case <-s.ended:
		return wire.Result{}, fmt.Errorf("%s: %s: %w", s.node.Name(), what, watch.ErrEnded)
	case <-ctx.Done():
		return wire.Result{}, fmt.Errorf("%s: %s: %w", s.node.Name(), what, context.Cause(ctx))
	}
}

// stop asks the node to finish and waits until its stream has ended.
func (s *process) stop(ctx context.Context) error {
	if err := s.conn.Send(wire.Frame{Type: wire.TypeStop}); err != nil && s.node.Process.Running() {
		return fmt.Errorf("%s: stop: %w", s.node.Name(), err)
	}
	select {
	case <-s.ended:
		return nil // where it failed, a frame of it has said so
	case <-ctx.Done():
		return fmt.Errorf("%s did not end: %w", s.node.Name(), context.Cause(ctx))
	}
}

// endedBy reports whether the stream is read to its end before ctx is over.
func (s *process) endedBy(ctx context.Context) bool {
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
func (s *process) greeting() *wire.Hello {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

// finished returns the node's done frame, or nil when it ended without one.
func (s *process) finished() *wire.Done {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// heard returns how many events arrived, and the time of the last one, which the node was certainly alive to send.
func (s *process) heard() (events, last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events, s.last
}

// close ends the control stream and writes the trailer of the history file. The stream must have been read to its end.
func (s *process) close() error {
	_ = s.conn.Close() // the node has closed its end already: nothing is lost
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
