package register

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Main runs the register's process.
func Main(ctx context.Context, o resource.Options) error {
	return resource.Drive(ctx, o, registerName, func(ctx context.Context) (resource.Body, error) {
		h, err := listen(ctx, o)
		return &registerBody{host: h, o: o}, err
	})
}

// registerBody drives the register within its process.
type registerBody struct {
	host
	o     resource.Options
	store *store
	asked resource.SequencerChecker // only for guards that ask
}

// host is common to the processes of this package: it serves users at its own address.
type host struct {
	listener net.Listener
	server   *server // nil before the start, and after the end
}

func listen(ctx context.Context, o resource.Options) (host, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	return host{listener: l}, err
}

func (*host) Watched() bool { return true }

// open serves users until Close, and returns the address.
func (h *host) open(ctx context.Context, answer func(ctx context.Context, line []byte) any) string {
	h.server = serve(ctx, h.listener, answer)
	return h.listener.Addr().String()
}

func (h *host) Close() {
	_ = h.listener.Close()
	if h.server != nil {
		h.server.close()
		h.server = nil
	}
}

func (r *registerBody) Start(ctx context.Context, s *wire.Start, rec *wire.Recorder) (string, error) {
	st, err := newStore(s.Guard, s.Locks, func(e *history.Event) { rec.Append(e) })
	if err != nil {
		return "", err
	}
	if kindOf(s.Guard).Sequencer {
		if err := r.connect(ctx, s); err != nil {
			return "", err
		}
		st.ask = r.asked
	}
	r.store = st
	return r.open(ctx, st.answer), nil
}

// connect makes the register a client of the lock service.
func (r *registerBody) connect(ctx context.Context, s *wire.Start) (err error) {
	if r.o.Sequencers == nil || len(s.Access) == 0 {
		return fmt.Errorf("guard %s asks the lock service, but its address is missing", s.Guard)
	}
	if r.asked, err = r.o.Sequencers(ctx, s.Access); err != nil {
		return fmt.Errorf("guard %s: %w", s.Guard, err)
	}
	return nil
}

func (r *registerBody) Final(_ context.Context, lock int) (resource.Final, error) {
	return r.store.final(lock)
}

func (r *registerBody) Close() {
	r.host.Close()
	if r.asked != nil {
		_ = r.asked.Close() // no further questions
		r.asked = nil
	}
}

// server serves users over TCP: each line is a request, answered in order.
type server struct {
	answer   func(ctx context.Context, line []byte) any
	listener net.Listener
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// serve accepts users until close.
func serve(ctx context.Context, l net.Listener, answer func(ctx context.Context, line []byte) any) *server {
	ctx, cancel := context.WithCancel(ctx)
	srv := &server{answer: answer, listener: l, stop: cancel}
	srv.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
					return
				}
				clock.Sleep(ctx, 10*time.Millisecond) // a user left before it was accepted, or there are too many
				continue
			}
			srv.wg.Go(func() { srv.user(ctx, c) })
		}
	})
	return srv
}

// close ends all connections and returns when nothing is applied any more.
func (s *server) close() {
	s.stop()
	_ = s.listener.Close()
	s.wg.Wait()
}

func (s *server) user(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	in := bufio.NewReaderSize(c, maxRequest)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		var a any
		if err != nil {
			a = reply{Outcome: wire.OutcomeFail, Error: fmt.Sprintf("a request has at most %d bytes", maxRequest)}
		} else {
			a = s.answer(ctx, line)
		}
		b, merr := json.Marshal(a)
		if merr != nil {
			return
		}
		if _, werr := c.Write(append(b, '\n')); werr != nil || err != nil {
			return
		}
	}
}

// answer carries out one request.
func (s *store) answer(ctx context.Context, line []byte) any {
	op, err := parse(line)
	if err != nil {
		return reply{Outcome: wire.OutcomeFail, Error: err.Error()}
	}
	got, err := s.apply(ctx, op)
	if err != nil {
		return reply{Outcome: wire.OutcomeFail, Fenced: errors.Is(err, resource.ErrFenced), Error: err.Error()}
	}
	a := reply{Outcome: wire.OutcomeOK, Value: got.value}
	if wantsVersion(s.guard) {
		a.Version = got.version
	}
	return a
}

func parse(line []byte) (operation, error) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return operation{}, fmt.Errorf("request is no JSON object: %w", err)
	}
	u, err := history.ParseUser(r.User)
	if err != nil {
		return operation{}, err
	}
	if r.Op != opRead && r.Op != opCheck && r.Op != opWrite {
		return operation{}, fmt.Errorf("op is %q: want %s, %s or %s", r.Op, opRead, opCheck, opWrite)
	}
	mode, ok := lock.ParseMode(r.Mode)
	if !ok {
		return operation{}, fmt.Errorf("mode is %q: want %s or %s", r.Mode, lock.Exclusive, lock.Shared)
	}
	return operation{
		Access: resource.Access{
			Lock: r.Lock, User: u, Grant: r.Grant, Token: lock.Token(r.Token), Mode: mode,
			Owner: r.Owner,
		},
		kind: r.Op, value: r.Value, version: r.Version,
	}, nil
}
