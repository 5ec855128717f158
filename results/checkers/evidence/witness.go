// Package evidence has what a finding consists of beside its counts, whatever it counts: the best witnesses, what
// standstills excuse, and whether all comparisons were made. It knows no checker.
package evidence

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Hold is a hold that proves something. It may still be open.
type Hold interface {
	// Pin keeps the hold from being reused for another one.
	Pin()
	// Ref returns the hold as it is drawn.
	Ref() results.HoldRef
	// Proof returns the events that made, renewed and ended the hold.
	Proof() []history.Event
}

// Proof is an unfinished witness: it points to holds that may still be open, and is written out at the end.
type Proof struct {
	Kind     string
	From, To int64
	Holds    []Hold
	Events   []history.Event // in addition to those of the holds
	Observed []history.Observation
	Rank     int           // the higher, the better for the picture
	Text     func() string // called at the end
}

// Shortlist keeps the best few of many proofs, the earlier one of two equally good ones.
type Shortlist struct {
	Room int // 0: results.MaxWitnesses
	list []Proof
}

func (s *Shortlist) room() int { return cmp.Or(s.Room, results.MaxWitnesses) }

// Wants reports whether a proof of that rank would be kept.
func (s *Shortlist) Wants(rank int) bool {
	return len(s.list) < s.room() || rank > s.list[s.worst()].Rank
}

func (s *Shortlist) worst() int {
	w := 0
	for i := range s.list {
		if s.list[i].Rank <= s.list[w].Rank {
			w = i
		}
	}
	return w
}

// Add keeps p if it is wanted, and pins its holds.
func (s *Shortlist) Add(p Proof) {
	if !s.Wants(p.Rank) {
		return
	}
	if len(s.list) == s.room() {
		w := s.worst()
		s.list = slices.Delete(s.list, w, w+1)
	}
	for _, h := range p.Holds {
		h.Pin()
	}
	s.list = append(s.list, p)
}

// Witnesses writes the proofs: the best first, then the earliest.
func (s *Shortlist) Witnesses(run results.Run) []results.Witness {
	slices.SortStableFunc(s.list, func(a, b Proof) int {
		return cmp.Or(cmp.Compare(b.Rank, a.Rank), cmp.Compare(a.From, b.From))
	})
	ws := make([]results.Witness, 0, len(s.list))
	for _, p := range s.list {
		w := results.Witness{Kind: p.Kind, From: p.From, To: p.To, Observed: p.Observed}
		for _, h := range p.Holds {
			w.Holds = append(w.Holds, h.Ref())
			w.Events = append(w.Events, h.Proof()...)
		}
		w.Events = append(w.Events, p.Events...)
		sortEvents(w.Events)
		if len(w.Events) > 0 {
			w.Lock = run.LockName(w.Events[0].Lock)
		}
		w.Text = p.Text()
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
