package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// vigilEvery is how often the service is asked for its sessions. A holder whose session ended is entitled up to the last
// answer that showed it, so a double grant within less than this of a session's end can be missed; none is invented.
const vigilEvery = 100 * time.Millisecond

// vigil watches over holds for which the service promises no time: they stand as long as their user's session. Their
// users cannot know when the service ended it, so the engine asks the service. A session that was seen standing stood
// all the time before, also while nobody could ask; so nothing is decided until the run is over.
type vigil struct {
	mu    sync.Mutex
	users map[history.User]*sitting
}

// sitting is what is known of one user.
type sitting struct {
	sessions map[string]*standing // by the service's id of it
	holds    []timeless
}

// standing is a session.
type standing struct {
	stood int64 // asked for then, it certainly stood; 0: never
	gone  int64 // answered then, it was no longer there; 0: it is
}

// timeless is a hold without an end of its validity.
type timeless struct {
	event history.Event // its acquire ok
	end   int64         // release invoke or loss; 0 while it is open
}

// forever is the end of a hold that has none.
const forever int64 = 1<<63 - 1

func newVigil() *vigil { return &vigil{users: map[history.User]*sitting{}} }

func (v *vigil) user(u history.User) *sitting {
	s := v.users[u]
	if s == nil {
		s = &sitting{sessions: map[string]*standing{}}
		v.users[u] = s
	}
	return s
}

// observe takes a batch of a client's events. A nil vigil watches over nothing.
func (v *vigil) observe(batch []history.Event) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range batch {
		e := &batch[i]
		switch {
		case e.Kind == history.Acquire && e.Phase == history.Ok && e.Valid == history.ValidEndless:
			s := v.user(e.User)
			s.holds = append(s.holds, timeless{event: *e})
		case e.Kind == history.Release && e.Phase == history.Invoke, e.Kind == history.Lost:
			s := v.user(e.User)
			for i := range s.holds {
				if h := &s.holds[i]; h.event.Op == e.Grant && h.end == 0 {
					h.end = e.Time
				}
			}
			s.holds = slices.DeleteFunc(s.holds, func(h timeless) bool { return h.end != 0 && s.until(h) == forever })
		}
	}
}

// take takes the service's answer to a question that was asked and answered then.
func (v *vigil) take(list []backends.Session, asked, answered int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	listed := map[string]bool{}
	for _, x := range list {
		listed[x.ID] = true
		s := v.user(x.User)
		if s.sessions[x.ID] == nil {
			s.sessions[x.ID] = &standing{}
		}
		if x.Stands {
			s.sessions[x.ID].stood = asked
		}
	}
	for _, s := range v.users {
		for id, x := range s.sessions {
			if !listed[id] && x.gone == 0 {
				x.gone = answered
			}
		}
		s.holds = slices.DeleteFunc(s.holds, func(h timeless) bool { return h.end != 0 && s.until(h) == forever })
	}
}

// until is when the hold stopped being certainly entitled, or forever. Which of the user's sessions it hangs on is not
// known where one follows the other, so every one counts that may have been there when it began.
func (s *sitting) until(h timeless) int64 {
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

// ends returns an event for each hold that was not entitled to its end, dated back to when that began.
func (v *vigil) ends() []history.Event {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []history.Event
	for _, s := range v.users {
		for _, h := range s.holds {
			if t := s.until(h); t != forever {
				e := h.event
				out = append(out, history.Event{
					Time: t, Kind: history.Ended, Phase: history.Info, User: e.User, Grant: e.Op, Lock: e.Lock, Mode: e.Mode, Valid: t,
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b history.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.User, b.User), cmp.Compare(a.Grant, b.Grant))
	})
	return out
}

// keepVigil asks the service for its sessions until the returned function is called, where it has any.
func (r *run) keepVigil(ctx context.Context) (stop func()) {
	lister, ok := r.service.(backends.SessionLister)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			asked := clock.Now()
			if list, err := lister.Sessions(ctx); err == nil {
				r.vigil.take(list, asked, clock.Now())
			} else if ctx.Err() == nil {
				r.log.Debug("the service does not tell its sessions", "error", err)
			}
			if clock.Sleep(ctx, vigilEvery) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
