package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// handoff is one: from a holder's release to the next one's grant, and how many users had asked by then and had no answer.
type handoff struct {
	last, next history.Event // the grants
	released   int64         // ns
	waiting    int
}

func (h handoff) long() int64 { return h.next.Time - h.released }

// handoffs finds those of a run.
type handoffs struct {
	asked   map[uint16]int        // by lock: acquires without an answer
	held    map[key]history.Event // grants that nobody began to release
	pending map[uint16]*handoff   // by lock: a release that no grant has followed yet
	all     []handoff
}

func newHandoffs() *handoffs {
	return &handoffs{asked: map[uint16]int{}, held: map[key]history.Event{}, pending: map[uint16]*handoff{}}
}

func (x *handoffs) observe(e *history.Event) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		x.asked[e.Lock]++
	case e.Kind == history.Acquire:
		x.asked[e.Lock]--
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
			x.pending[e.Lock] = &handoff{last: g, released: e.Time, waiting: x.asked[e.Lock]}
			delete(x.held, of)
		}
	}
}

// crowded makes the scene of a lock that nothing happens to but that many want: one handoff, of the length that lies in the middle of all.
func (sc *scene) crowded(dir string) error {
	x := newHandoffs()
	if err := sc.scan(dir, x.observe); err != nil || len(x.all) == 0 {
		return err
	}
	slices.SortStableFunc(x.all, func(a, b handoff) int { return cmp.Compare(a.long(), b.long()) })
	h := x.all[len(x.all)/2]
	sc.handoff = &h
	return sc.grants(dir, &h.last, &h.next)
}

// waitMark adds who waits while a handoff is made, and what one costs.
func (s *story) waitMark() {
	h := s.scene.handoff
	if h == nil {
		return
	}
	var labels, costs []string
	for _, c := range []struct{ measure, label, say string }{
		{"wakeups_per_handoff", "%.3g woken", "wakes %.3g of them"},
		{"requests_per_handoff", "%.3g requests", "costs the servers %.3g requests"},
	} {
		if m := s.scene.report.Measures[c.measure]; m != nil {
			labels = append(labels, fmt.Sprintf(c.label, *m))
			costs = append(costs, fmt.Sprintf(c.say, *m))
		}
	}
	label := fmt.Sprintf("%d wait; a handoff: %s", h.waiting, list(labels))
	say := fmt.Sprintf("%d users wait for %s; in the mean of the run a handoff %s", h.waiting, s.scene.lockName(h.last.Lock), list(costs))
	s.add(mark{Time: h.released, Kind: markNote, Lane: s.client(h.last.User), To: nowhere, Label: label, Say: say, Weight: weightTurn})
}
