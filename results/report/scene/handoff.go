package scene

import (
	"slices"

	"github.com/lockquake/lockquake/history"
)

// Handoff is the time from a holder's release to the next grant, with the acquires unanswered at the release.
type Handoff struct {
	Last, next history.Event   // the grants
	Released   int64           // ns
	Waiting    int             // unanswered acquires at that time
	asked      []history.Event // the first of them
}

// maxWaiters is how many waiting users have their own lane.
const maxWaiters = 4

// Long returns its duration in ns.
func (h Handoff) Long() int64 { return h.next.Time - h.Released }

// handoffs finds the handoffs of a run.
type handoffs struct {
	asked   map[uint16][]history.Event // by lock: unanswered acquires
	held    map[key]history.Event      // grants without a release
	pending map[uint16]*Handoff        // by lock: a release without a following grant
	all     []Handoff
}

func newHandoffs() *handoffs {
	return &handoffs{asked: map[uint16][]history.Event{}, held: map[key]history.Event{}, pending: map[uint16]*Handoff{}}
}

func (x *handoffs) observe(e *history.Event) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		x.asked[e.Lock] = append(x.asked[e.Lock], *e)
	case e.Kind == history.Acquire:
		x.asked[e.Lock] = slices.DeleteFunc(x.asked[e.Lock],
			func(a history.Event) bool { return a.User == e.User && a.Op == e.Op })
		if e.Phase != history.Ok {
			return
		}
		if h := x.pending[e.Lock]; h != nil {
			h.next = *e
			x.all = append(x.all, *h)
			delete(x.pending, e.Lock)
		}
		x.held[key{e.User, e.Op}] = *e
	case e.Kind == history.Release && e.Phase == history.Invoke:
		of := key{e.User, e.Grant}
		if g, ok := x.held[of]; ok {
			if waiting := x.asked[e.Lock]; len(waiting) > 0 {
				first := slices.Clone(waiting[:min(len(waiting), maxWaiters+1)]) // one of them may be the next holder
				x.pending[e.Lock] = &Handoff{Last: g, Released: e.Time, Waiting: len(waiting), asked: first}
			}
			delete(x.held, of)
		}
	}
}
