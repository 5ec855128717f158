package watch

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// sessionsEvery is how often the service is asked for its sessions. A holder whose session ended is entitled up to
// the last answer that showed it. So a double grant within less than this of a session's end can be missed, and none
// is invented.
const sessionsEvery = 100 * time.Millisecond

// Sessions finds the end of holds that last as long as their user's session with the service. The user cannot know
// when the service ended it, so the engine asks. A session that is listed was alive all the time before, even while
// it could not be asked for. So nothing is decided until the run is over.
//
// Example: a ZooKeeper session is listed at 10.0 s and missing at 10.1 s. Its user's hold is entitled until 10.0 s.
type Sessions struct {
	service topology.SessionLister
	log     *slog.Logger

	mu    sync.Mutex
	users map[history.User]*userSessions
}

// userSessions is what is known of one user.
type userSessions struct {
	sessions map[string]*serviceSession // by the service's id of it
	holds    []sessionHold
}

// serviceSession is a session as reported by the service.
type serviceSession struct {
	stood int64 // send time of the last question whose answer listed it as alive; 0: none did
	gone  int64 // time of the first answer that did not list it; 0: all did
}

// sessionHold is a hold that lasts as long as a session.
type sessionHold struct {
	event history.Event // its acquire ok
	end   int64         // release invoke or loss; 0: still open
}

// forever is the end of a hold that has none.
const forever int64 = 1<<63 - 1

// NewSessions returns a watch of a service.
func NewSessions(service topology.SessionLister, log *slog.Logger) *Sessions {
	return &Sessions{service: service, log: log, users: map[history.User]*userSessions{}}
}

func (w *Sessions) user(u history.User) *userSessions {
	s := w.users[u]
	if s == nil {
		s = &userSessions{sessions: map[string]*serviceSession{}}
		w.users[u] = s
	}
	return s
}

// Observe adds a batch of a client's events. A nil watch ignores them.
func (w *Sessions) Observe(batch []history.Event) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range batch {
		e := &batch[i]
		switch {
		case e.Kind == history.Acquire && e.Phase == history.Ok && e.Valid == history.ValidEndless:
			s := w.user(e.User)
			s.holds = append(s.holds, sessionHold{event: *e})
		case e.Kind == history.Release && e.Phase == history.Invoke, e.Kind == history.Lost:
			s := w.user(e.User)
			for i := range s.holds {
				if h := &s.holds[i]; h.event.Op == e.Grant && h.end == 0 {
					h.end = e.Time
				}
			}
			s.holds = slices.DeleteFunc(s.holds,
				func(h sessionHold) bool { return h.end != 0 && s.until(h) == forever })
		}
	}
}

// take handles the service's answer to a question, with the times of both.
func (w *Sessions) take(list []topology.Session, asked, answered int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := map[string]bool{}
	for _, x := range list {
		listed[x.ID] = true
		s := w.user(x.User)
		if s.sessions[x.ID] == nil {
			s.sessions[x.ID] = &serviceSession{}
		}
		if x.Stands {
			s.sessions[x.ID].stood = asked
		}
	}
	for _, s := range w.users {
		for id, x := range s.sessions {
			if !listed[id] && x.gone == 0 {
				x.gone = answered
			}
		}
		s.holds = slices.DeleteFunc(s.holds, func(h sessionHold) bool { return h.end != 0 && s.until(h) == forever })
	}
}

// until returns when the hold was last known to be entitled, or forever. If one session of the user follows another,
// the hold may belong to either. So every session counts that may have existed when the hold began.
func (s *userSessions) until(h sessionHold) int64 {
	begun, end := h.event.Time, cmp.Or(h.end, forever)
	covered, until := int64(0), forever
	for _, x := range s.sessions {
		covered = max(covered, x.stood)
		if (x.gone == 0 || x.gone >= begun) && x.stood < end {
			until = min(until, max(x.stood, begun))
		}
	}
	if covered < end {
		until = min(until, max(covered, begun))
	}
	return until
}

// Ends returns an event for each hold that was not entitled to its end, with the time at which that began.
func (w *Sessions) Ends() []history.Event {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []history.Event
	for _, s := range w.users {
		for _, h := range s.holds {
			if t := s.until(h); t != forever {
				e := h.event
				out = append(out, history.Event{
					Time: t, Kind: history.Ended, Phase: history.Info, User: e.User, Grant: e.Op, Lock: e.Lock,
					Mode: e.Mode, Valid: t,
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b history.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.User, b.User), cmp.Compare(a.Grant, b.Grant))
	})
	return out
}

// KeepAsking asks the service for its sessions until the returned function is called. A nil watch does nothing.
func (w *Sessions) KeepAsking(ctx context.Context) (stop func()) {
	if w == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			asked := clock.Now()
			if list, err := w.service.Sessions(ctx); err == nil {
				w.take(list, asked, clock.Now())
			} else if ctx.Err() == nil {
				w.log.Debug("the service does not list its sessions", "error", err)
			}
			if clock.Sleep(ctx, sessionsEvery) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
