package report

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/figure"
)

// handoff is the time from a holder's release to the next one's grant, with those who had asked by then and had no
// answer.
type handoff struct {
	last, next history.Event   // the grants
	released   int64           // ns
	waiting    int             // acquires without an answer by then
	asked      []history.Event // the first of them
}

// maxWaiters is how many of those who wait have a lane of their own.
const maxWaiters = 4

func (h handoff) long() int64 { return h.next.Time - h.released }

// handoffs finds those of a run.
type handoffs struct {
	asked   map[uint16][]history.Event // by lock: acquires without an answer
	held    map[key]history.Event      // grants that nobody began to release
	pending map[uint16]*handoff        // by lock: a release that no grant has followed yet
	all     []handoff
}

func newHandoffs() *handoffs {
	return &handoffs{asked: map[uint16][]history.Event{}, held: map[key]history.Event{}, pending: map[uint16]*handoff{}}
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
				x.pending[e.Lock] = &handoff{last: g, released: e.Time, waiting: len(waiting), asked: first}
			}
			delete(x.held, of)
		}
	}
}

// handoff adds who waits while a handoff is made, and what one costs.
func (m marker) handoff() {
	h := m.scene.handoff
	if h == nil {
		return
	}
	var labels, costs []string
	for _, c := range []struct{ measure, label, say string }{
		{"wakeups_per_handoff", "%.3g woken", "wakes %.3g of them"},
		{"requests_per_handoff", "%.3g requests", "costs the servers %.3g requests"},
	} {
		if n := m.scene.report.Measures[c.measure]; n != nil {
			labels = append(labels, fmt.Sprintf(c.label, *n))
			costs = append(costs, fmt.Sprintf(c.say, *n))
		}
	}
	label := fmt.Sprintf("%d wait; a handoff: %s", h.waiting, figure.List(labels))
	say := fmt.Sprintf("%d users wait for %s; in the mean of the run a handoff %s", h.waiting,
		m.scene.lockName(h.last.Lock), figure.List(costs))
	m.story.add(mark{
		Time: h.released, Kind: markNote, Lane: m.story.Lanes.client(h.last.User), To: nowhere, Label: label, Say: say,
		Weight: weightTurn,
	})
}
