package checkers

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// proof is an unfinished witness: it points to holds that may still be open, and is written out at the end.
type proof struct {
	kind     string
	from, to int64
	holds    []*hold
	events   []history.Event // in addition to those of the holds
	observed []history.Observation
	rank     int           // the higher, the better for the picture
	text     func() string // called at the end
}

// shortlist keeps the best few of many proofs, the earlier one of two equally good ones.
type shortlist struct {
	list []proof
	room int
}

// wants reports whether a proof of that rank would be kept.
func (s *shortlist) wants(rank int) bool {
	return len(s.list) < s.room || rank > s.list[s.worst()].rank
}

func (s *shortlist) worst() int {
	w := 0
	for i := range s.list {
		if s.list[i].rank <= s.list[w].rank {
			w = i
		}
	}
	return w
}

// add keeps p if it is wanted, and pins its holds.
func (s *shortlist) add(p proof) {
	if !s.wants(p.rank) {
		return
	}
	if len(s.list) == s.room {
		w := s.worst()
		s.list = slices.Delete(s.list, w, w+1)
	}
	for _, h := range p.holds {
		h.pinned = true
	}
	s.list = append(s.list, p)
}

// witnesses writes the proofs: the best first, then the earliest.
func (s *shortlist) witnesses(run results.Run) []results.Witness {
	slices.SortStableFunc(s.list, func(a, b proof) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.from, b.from))
	})
	ws := make([]results.Witness, 0, len(s.list))
	for _, p := range s.list {
		w := results.Witness{Kind: p.kind, From: p.from, To: p.to, Observed: p.observed}
		for _, h := range p.holds {
			w.Holds = append(w.Holds, h.ref())
			w.Events = append(w.Events, h.proof()...)
		}
		w.Events = append(w.Events, p.events...)
		sortEvents(w.Events)
		if len(w.Events) > 0 {
			w.Lock = run.LockName(w.Events[0].Lock)
		}
		w.Text = p.text()
		ws = append(ws, w)
	}
	return ws
}

// sortEvents sorts events by time, keeping the order of each process.
func sortEvents(es []history.Event) {
	slices.SortStableFunc(es, func(a, b history.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.User, b.User), cmp.Compare(a.Seq, b.Seq))
	})
}

// aimedAt reports whether a fault was aimed at this very hold.
func aimedAt(run results.Run, h *hold) bool {
	for i := range run.Faults {
		f := &run.Faults[i]
		if f.Grant == h.grant && f.User != nil && *f.User == h.user {
			return true
		}
	}
	return false
}
