package checkers

import (
	"math"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// keptHolds is how many of a user's latest holds are kept for effects that arrive late.
const keptHolds = 16

// maxWaiting bounds the effects that wait for the hold of the first of them. Beyond it that one is judged by what is
// known then.
const maxWaiting = 1 << 16

// accessor is a hold from the resource's point of view.
type accessor struct {
	*hold
	served bool  // the resource served it
	saw    int64 // number of writes applied there when the resource last served it
}

// effect is a read or write that the resource served or refused.
type effect struct {
	history.Event
	hold        *accessor // nil if the history has none, or it is long over
	from, until int64     // when it happened: an interval if the resource's clock is inexact
}

// effects finds the hold of each effect, in the order of their arrival at the resource.
type effects struct {
	clocks results.Clocks
	errs   []*history.Header        // processes of the resource whose clock is not the run's
	past   users.Table[[]*accessor] // the latest holds of a user, including open ones
	queue  []effect                 // in the order of arrival, with inexact clocks; the first waits for its hold
	found  func(*effect)
}

func newEffects(run results.Run, found func(*effect)) *effects {
	s := &effects{clocks: run.Clocks(), found: found}
	for i := range run.Processes {
		p := &run.Processes[i]
		if _, client := history.ClientOf(p.Process); !client && !p.Exact() {
			s.errs = append(s.errs, p)
		}
	}
	return s
}

// began remembers a hold.
func (s *effects) began(h *hold) {
	past := s.past.At(h.user)
	if len(*past) == keptHolds {
		*past = without(*past, (*past)[0])
	}
	*past, h.pinned = append(*past, &accessor{hold: h}), true
}

// ended takes the end of a session whose client is lost: its holds are closed by then, so the tracker skips it.
func (s *effects) ended(e *history.Event) {
	if a := s.find(e); a != nil && a.end != results.Forever && a.over.Kind == history.KindNone {
		h := *a.hold // the others see it unchanged
		h.spans, h.ended = slices.Clone(h.spans), e.Time
		h.renewValidity(e.Time, e.Valid)
		a.hold = &h
	}
}

// observe takes the next event, before it changes a hold.
func (s *effects) observe(e *history.Event) {
	s.serve(e.Time)
	if e.Kind != history.EffectRead && e.Kind != history.EffectWrite || e.Phase == history.Info { // that is no effect
		return
	}
	var wrong int64
	for _, p := range s.errs {
		wrong = max(wrong, p.Error(e.Time))
	}
	x := effect{Event: *e, from: e.Time - wrong, until: e.Time + wrong}
	if len(s.errs) > 0 || len(s.clocks) > 0 {
		s.queue = append(s.queue, x)
		return
	}
	s.attach(&x)
}

// finish pairs the remaining effects after the last event.
func (s *effects) finish() { s.serve(math.MaxInt64) }

// serve pairs the effects that waited until now, in the order of arrival. An effect waits for its hold, and later
// ones wait with it: with inexact clocks a hold's first effects may be stamped before its acquire ok. Example: the
// resource, whose clock is exact, serves A's read at 10 ms. A's clock is 3 ms fast, so its acquire ok of 9 ms is
// stamped 12 ms. Its error is 5 ms at most: after an event of 16 ms no grant of A's can belong to that read any more.
// A known hold is complete once an event is stamped after its start, because the end of its session may be reported
// at that moment.
func (s *effects) serve(now int64) {
	for len(s.queue) > 0 {
		x := s.queue[0]
		h := s.find(&x.Event)
		known := h != nil && h.start < now
		if !known && s.clocks.Early(x.User, now) <= x.until && len(s.queue) <= maxWaiting {
			return
		}
		s.queue = s.queue[1:]
		s.attach(&x)
	}
}

// attach finds the hold of an effect. An effect does not belong to a grant that certainly came later.
func (s *effects) attach(x *effect) {
	if h := s.find(&x.Event); h != nil && h.earliest(h.start) <= x.until {
		x.hold = h
	}
	s.found(x)
}

func (s *effects) find(e *history.Event) *accessor {
	for _, h := range *s.past.At(e.User) {
		if h.grant == e.Grant {
			return h
		}
	}
	return nil
}
