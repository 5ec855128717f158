package resource

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
)

// registerBody is the register as its process drives it.
type registerBody struct {
	o        Options
	listener net.Listener
	server   *server
	store    *store
	asked    SequencerChecker // nil but for GuardSequencer
}

func newRegister(ctx context.Context, o Options) (body, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, err
	}
	return &registerBody{o: o, listener: l}, nil
}

func (r *registerBody) watched() bool { return true }

func (r *registerBody) start(ctx context.Context, s *wire.Start, rec *wire.Recorder) (string, error) {
	st, err := newStore(s.Guard, s.Locks, func(e *history.Event) { rec.Append(e) })
	if err != nil {
		return "", err
	}
	if s.Guard == GuardSequencer {
		if err := r.connect(ctx, s); err != nil {
			return "", err
		}
		st.ask = r.asked
	}
	r.store, r.server = st, serve(ctx, r.listener, st.answer)
	return r.listener.Addr().String(), nil
}

// connect makes the register a client of the lock service.
func (r *registerBody) connect(ctx context.Context, s *wire.Start) (err error) {
	if r.o.Sequencers == nil || len(s.Access) == 0 {
		return fmt.Errorf("guard %s asks the lock service, and nobody said how to reach it", s.Guard)
	}
	if r.asked, err = r.o.Sequencers(ctx, s.Access); err != nil {
		return fmt.Errorf("guard %s: %w", s.Guard, err)
	}
	return nil
}

func (r *registerBody) final(_ context.Context, lock int) (final, error) {
	return r.store.final(lock)
}

func (r *registerBody) close() {
	_ = r.listener.Close()
	if r.server != nil {
		r.server.close()
		r.server = nil
	}
	if r.asked != nil {
		_ = r.asked.Close() // nothing is asked any more
		r.asked = nil
	}
}

// server is the face of a process of ours to the users: lines of requests, each answered in order.
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
		return reply{Outcome: wire.OutcomeFail, Fenced: errors.Is(err, ErrFenced), Error: err.Error()}
	}
	a := reply{Outcome: wire.OutcomeOK, Value: got.value}
	if s.guard == GuardCASVersion {
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
		Access: Access{Lock: r.Lock, User: u, Grant: r.Grant, Token: lock.Token(r.Token), Mode: mode, Owner: r.Owner},
		kind:   r.Op, value: r.Value, version: r.Version,
	}, nil
}
