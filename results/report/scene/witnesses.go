package scene

import (
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/figure"
)

// witnessKinds maps the kinds of witness whose drawing a checker declares, by name.
var witnessKinds = sync.OnceValue(func() map[string]results.WitnessKind {
	kinds := map[string]results.WitnessKind{}
	for _, c := range checkers.All() {
		for _, k := range c.Witnesses {
			kinds[k.Name] = k
		}
	}
	return kinds
})

// Drawing returns how a witness is drawn.
func Drawing(w results.Witness) results.Drawing { return witnessKinds()[w.Kind].Draw }

// Witnesses iterates over a report's witnesses with one of these drawings, in the order of the findings.
func Witnesses(r results.Report, drawn ...results.Drawing) iter.Seq[*results.Witness] {
	return func(yield func(*results.Witness) bool) {
		for _, f := range r.Findings {
			for i := range f.Witnesses {
				if w := &f.Witnesses[i]; slices.Contains(drawn, Drawing(*w)) && !yield(w) {
					return
				}
			}
		}
	}
}

// unavailable returns the witness of the longest time for which a lock could not be taken.
func unavailable(r results.Report) *results.Witness {
	for w := range Witnesses(r, results.DrawGap) {
		return w
	}
	return nil
}

// Outage says how long which locks could not be taken, and why; "" if unknown.
func Outage(r results.Report) string {
	if w := unavailable(r); w != nil {
		return w.Text
	}
	return ""
}

// pictured returns the witnesses that a picture may be about, the worst kinds first.
func pictured(r results.Report) (all []*results.Witness) {
	for _, f := range r.Findings {
		for i := range f.Witnesses {
			w := &f.Witnesses[i]
			if d := Drawing(*w); d.Pictured() && (len(w.Holds) > 0 || d == results.DrawWhole) {
				all = append(all, w)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *results.Witness) int { return placeOf(*a) - placeOf(*b) })
	return all
}

// placeOf returns the rank of a kind of witness.
func placeOf(w results.Witness) int {
	if place := witnessKinds()[w.Kind].Place; place > 0 {
		return place
	}
	return len(witnessKinds()) + 1 // after all that have a place
}

// choose returns the witness to draw, and the one that caused it if known. The worst kind goes first, and of that
// kind a witness whose cause the judge names. ok is false if a picture may be about none.
func choose(r results.Report) (w results.Witness, cause *results.Witness, ok bool) {
	for _, x := range pictured(r) {
		if ok && placeOf(*x) != placeOf(w) {
			break
		}
		because := causeOf(*x, r)
		if !ok || cause == nil && because != nil {
			w, cause, ok = *x, because, true
		}
	}
	return w, cause, ok
}

// causeOf returns the foreign release that let the second holder of a double grant in.
func causeOf(w results.Witness, r results.Report) *results.Witness {
	if Drawing(w) != results.DrawEntitled || len(w.Holds) != 2 {
		return nil
	}
	for x := range Witnesses(r, results.DrawRelease) {
		if len(x.Holds) > 1 && Same(x.Holds[0], w.Holds[0]) && Same(x.Holds[1], w.Holds[1]) {
			return x
		}
	}
	return nil
}

// Same reports whether two references are to one hold.
func Same(a, b results.HoldRef) bool { return a.User == b.User && a.Grant == b.Grant }

// Headline returns the title of a witness; who names its two holders.
func Headline(w results.Witness, who string) string {
	if k := witnessKinds()[w.Kind]; k.Title != nil {
		return k.Title(w, who)
	}
	return figure.Words(w.Kind)
}

// successor finds a better second hold for the picture of a stale write or a fence save. The judge's proof is any
// later hold that it remembers, which is often the last of many. The first later hold that wrote makes a clearer
// picture, and proves the same: it is later by the same rule, and had touched the resource before.
type successor struct {
	w       results.Witness
	env     results.Env
	lock    int
	open    map[key]*results.HoldRef
	found   *results.HoldRef
	touched int64
}

// newSuccessor returns nil if another hold could not prove a witness of this kind.
func newSuccessor(w results.Witness, env results.Env) *successor {
	if d := Drawing(w); d != results.DrawOvertaken && d != results.DrawSaved || len(w.Holds) < 2 {
		return nil
	}
	return &successor{w: w, env: env, lock: -1, open: map[key]*results.HoldRef{}}
}

func (s *successor) names(locks []string) { s.lock = slices.Index(locks, s.w.Lock) }

func (s *successor) observe(e *history.Event) {
	first := s.w.Holds[0]
	if int(e.Lock) != s.lock || e.Time <= first.Start {
		return
	}
	at := key{e.User, e.Grant}
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok && s.found == nil:
		h := refOf(e)
		if e.User != first.User && e.Mode == uint8(0) && s.later(&h) {
			s.open[key{e.User, e.Op}] = &h
		}
	case e.Kind == history.EffectWrite && e.Phase == history.Ok && s.found == nil && e.Time < s.w.To:
		if h := s.open[at]; h != nil {
			s.found, s.touched = h, e.Time
		}
	case s.open[at] != nil:
		follow(s.open[at], e)
	}
}

// later applies the judge's rule: by time, and by a token of the service only if time leaves it open.
func (s *successor) later(h *results.HoldRef) bool {
	first := s.w.Holds[0]
	return h.Issued > first.Start || s.env.Token == "service" && first.Token != 0 && h.Token > first.Token
}

// witness returns the witness to draw: the judge's own if no better one was found.
func (s *successor) witness() results.Witness {
	if s.found == nil {
		return s.w
	}
	w := s.w
	w.Holds = []results.HoldRef{s.w.Holds[0], *s.found}
	w.From = s.touched
	what := "was applied"
	if Drawing(w) == results.DrawSaved {
		what = "was refused"
	}
	ms := func(t int64) string { return fmt.Sprintf("%.1f ms", float64(t-s.env.Start)/1e6) }
	w.Text = fmt.Sprintf("%v was granted %s at %s. Its write at %s %s after %v, granted the lock at %s, had written at %s.",
		w.Holds[0].User, w.Lock, ms(w.Holds[0].Start), ms(w.To), what, s.found.User, ms(s.found.Start), ms(s.touched))
	return w
}

// betterWitness reads the history for a better second hold of a witness. If it cannot be read, the judge's own stays.
func betterWitness(dir string, w results.Witness, env results.Env) results.Witness {
	s := newSuccessor(w, env)
	if s == nil || scan(dir, env, s.names, func(_ string, e *history.Event) { s.observe(e) }) != nil {
		return w
	}
	return s.witness()
}
