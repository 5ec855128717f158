package checkers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// proof is a witness in the making: it points to holds that may still go on, and is written out when all is known.
type proof struct {
	kind     string
	from, to int64
	holds    []*hold
	events   []history.Event // beside those of the holds
	observed []history.Observation
	rank     int           // the higher, the better for the picture
	text     func() string // called when all is known
}

// shortlist keeps the best few of many proofs, the earlier one where two are equally good.
type shortlist struct {
	list []proof
	room int
}

// wants tells whether a proof of that rank would be kept.
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

// witnesses writes the proofs out: the best first, then the earliest.
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
			w.Lock = lockName(run, w.Events[0].Lock)
		}
		w.Text = p.text()
		ws = append(ws, w)
	}
	return ws
}

// sortEvents puts events in the order of time, those of one process in its own.
func sortEvents(es []history.Event) {
	slices.SortStableFunc(es, func(a, b history.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.User, b.User), cmp.Compare(a.Seq, b.Seq))
	})
}

func lockName(run results.Run, i uint16) string {
	if int(i) < len(run.Locks) {
		return run.Locks[i]
	}
	return fmt.Sprintf("lock #%d", i)
}

// aimedAt tells whether a fault was aimed at this very hold.
func aimedAt(run results.Run, h *hold) bool {
	for i := range run.Faults {
		f := &run.Faults[i]
		if f.Grant == h.grant && f.User != nil && *f.User == h.user {
			return true
		}
	}
	return false
}

// count and measure make the pointers of a finding's maps.
func count(n int64) *int64 { return &n }

func measure(x float64) *float64 { return &x }

// verdictOf is violated where something was found.
func verdictOf(n int64) results.Verdict {
	if n > 0 {
		return results.Violated
	}
	return results.Clean
}

// skipped makes f the finding of a property that does not apply.
func skipped(f results.Finding, why string) results.Finding {
	f.Verdict, f.Skipped, f.Counts = results.Unknown, why, nil
	return f
}

// lacking is a finding of a run in which something is missing without which nothing can be told; why is its warning.
func lacking(f results.Finding, why string) results.Finding {
	f = skipped(f, "")
	f.Warnings = []string{why}
	return f
}

// prove adds a witness, while there is room.
func prove(f *results.Finding, w results.Witness) {
	if len(f.Witnesses) < results.MaxWitnesses {
		f.Witnesses = append(f.Witnesses, w)
	}
}

// found judges the one count of a checker, of which a violation might have come up as often as chances says.
func found(f results.Finding, name string, n, chances int64) results.Finding {
	f.Verdict = verdictOf(n)
	f.Counts = map[string]*int64{name: count(n)}
	f.Chances = map[string]results.Chances{name: {N: chances}}
	return f
}
