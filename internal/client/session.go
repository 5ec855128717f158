package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// session is a client between its start and its end.
type session struct {
	o    Options
	conn *wire.Conn
	life context.Context // ends when everything must
	end  context.CancelCauseFunc
	load context.Context // ends at the stop: no acquire begins after it
	halt context.CancelFunc

	start    *wire.Start
	access   backends.Access
	timeout  time.Duration
	rec      *wire.Recorder // nil: only count
	pulse    *wire.Pulse
	service  backends.Connection
	resource *resource.Kind // nil: no resource is protected
	workload workloads.Workload
	brief    bool // the workload does nothing between a grant and its release
	tally    tally
	cpu      int64 // at the go
	running  sync.WaitGroup

	mu    sync.Mutex
	users []*user
}

func newSession(life context.Context, end context.CancelCauseFunc, o Options, conn *wire.Conn) *session {
	s := &session{o: o, conn: conn, life: life, end: end}
	s.load, s.halt = context.WithCancel(life)
	return s
}

// Handle carries out one frame; done is true after the stop.
func (s *session) Handle(f *wire.Frame) (done bool, err error) {
	switch {
	case f.Type == wire.TypeStart && s.start == nil:
		if err := s.begin(f.Start); err != nil {
			return false, err
		}
		return false, s.conn.Send(wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{}})
	case f.Type == wire.TypeGo && s.start != nil:
		s.letGo(f.Go.Time)
		return false, nil
	case f.Type == wire.TypeCommand && s.start != nil:
		return false, s.command(*f.Command)
	case f.Type == wire.TypeStop:
		return true, s.finish()
	}
	return false, fmt.Errorf("frame %q is not expected here", f.Type)
}

// letGo starts the workload's users at the given time of the run's clock.
func (s *session) letGo(at int64) {
	s.cpu = wire.CPU()
	if s.workload == nil {
		return
	}
	for _, u := range s.workers() {
		s.running.Go(func() {
			clock.Sleep(s.load, time.Duration(at-clock.Now()))
			u.free = clock.Now()
			if err := s.workload.Run(u.at(s.load), u); err != nil {
				s.tally.add(fmt.Errorf("workload %s: %w", s.start.Workload.Use, err))
			}
		})
	}
}

// workers returns the users that run the workload.
func (s *session) workers() []*user {
	if s.start.Workload == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users[:s.start.Workload.Users]
}

// finish ends the users in order, sends what is left, and says goodbye.
func (s *session) finish() error {
	ended := clock.Now()
	s.halt()
	s.each((*user).dismiss)
	s.running.Wait()
	if s.start == nil {
		return s.conn.Send(wire.Frame{Type: wire.TypeDone, Done: &wire.Done{}})
	}
	s.disconnect()
	d := wire.Done{Errors: s.tally.texts()}
	var err error
	if d.Stall, err = s.closeRecord(); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	d.Recorded, d.Dropped = s.rec.Counts()
	s.each(func(u *user) {
		d.Cycles += u.grants
		d.Lag = max(d.Lag, u.lag)
	})
	if p, ok := s.workload.(workloads.Pacer); ok {
		d.Unstarted = p.Unstarted(ended)
	}
	if !s.o.InProcess {
		d.CPU = wire.CPU() - s.cpu
	}
	return s.conn.Send(wire.Frame{Type: wire.TypeDone, Done: &d})
}

// Abandon leaves locks and users as they are, and frees what it can.
func (s *session) Abandon() {
	s.halt()
	s.end(context.Canceled)
	s.each((*user).dismiss)
	s.running.Wait()
	_, _ = s.closeRecord() // nobody reads it
	s.disconnect()
}

// closeRecord ends the watch and the record. It runs once: a client whose goodbye cannot be sent is abandoned after
// it has finished. It returns the longest gap in ns.
func (s *session) closeRecord() (stall int64, err error) {
	if s.pulse == nil {
		return 0, nil
	}
	stall = s.pulse.Stop()
	s.pulse = nil
	return stall, s.rec.Close()
}

// disconnect closes lockers and connections. Those that do not close in time are left behind.
func (s *session) disconnect() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.each(func(u *user) { s.tally.add(u.disconnect()) })
		if s.service != nil {
			s.tally.add(s.service.Close())
		}
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
		s.tally.add(errors.New("connections did not close in time"))
	}
}

func (s *session) each(do func(*user)) {
	s.mu.Lock()
	users := s.users
	s.mu.Unlock()
	for _, u := range users {
		do(u)
	}
}

// userName returns the name of a user in the history.
func (s *session) userName(number int) history.User { return history.MakeUser(s.start.Index, number) }
