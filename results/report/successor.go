package report

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

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

// newSuccessor returns nil where the witness is not of a kind that another hold could prove.
func newSuccessor(w results.Witness, env results.Env) *successor {
	if !slices.Contains([]string{"stale_write", "fence_save"}, w.Kind) || len(w.Holds) < 2 {
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

// later holds the same rule as the judge: by time, and only where time leaves it open by a token of the service.
func (s *successor) later(h *results.HoldRef) bool {
	first := s.w.Holds[0]
	return h.Issued > first.Start || s.env.Token == "service" && first.Token != 0 && h.Token > first.Token
}

// witness returns the witness to draw: the judge's own where no better one was found.
func (s *successor) witness() results.Witness {
	if s.found == nil {
		return s.w
	}
	w := s.w
	w.Holds = []results.HoldRef{s.w.Holds[0], *s.found}
	w.From = s.touched
	what := "was applied"
	if w.Kind == "fence_save" {
		what = "was refused"
	}
	ms := func(t int64) string { return fmt.Sprintf("%.1f ms", float64(t-s.env.Start)/1e6) }
	w.Text = fmt.Sprintf("%v was granted %s at %s. Its write at %s %s after %v, granted the lock at %s, had written at %s.",
		w.Holds[0].User, w.Lock, ms(w.Holds[0].Start), ms(w.To), what, s.found.User, ms(s.found.Start), ms(s.touched))
	return w
}

// betterWitness reads the history for a better second hold of a witness. Where it cannot be read, the judge's own
// stays.
func betterWitness(dir string, w results.Witness, env results.Env) results.Witness {
	s := newSuccessor(w, env)
	if s == nil || scan(dir, env, s.names, plainly(s.observe)) != nil {
		return w
	}
	return s.witness()
}
