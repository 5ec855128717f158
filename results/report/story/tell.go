// Package story describes a scene of a run: the participants, and what they did, in the order of time, each as a mark
// of a picture and as a sentence.
package story

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/scene"
)

// Of reads the story of a run directory; nil without one.
func Of(dir string, r results.Report, env results.Env) (*Story, error) {
	sc, err := scene.New(dir, r, env)
	if err != nil || sc == nil {
		return nil, err
	}
	return Tell(sc), nil
}

// Tell makes the story of a scene.
func Tell(sc *scene.Scene) *Story {
	s := &Story{
		Title: headed(sc, title(sc)), Text: text(sc), Foot: foot(sc.Env), Backend: sc.Env.Backend,
		NoLock: sc.Env.NoLock, Start: sc.Env.Start, Lanes: lanesOf(sc),
	}
	for _, h := range sc.Holds {
		if sc.Env.NoLock { // a user at work, with no grant that could end
			h.Issued, h.Valid = h.Start, history.ValidEndless
		}
		s.Holds = append(s.Holds, Bar{Ref: h, Lane: s.Lanes.client(h.User), Asked: h.Issued})
	}
	m := marker{scene: sc, story: s}
	if !sc.Env.NoLock {
		lockMarker(m).lockMarks()
		overlapMarker(m).overlaps()
		overlapMarker(m).validityMarks()
	}
	accessMarker(m).accessMarks()
	faultMarker(m).faultMarks()
	seenMarker(m).seenMarks()
	topicMarker(m).marks()
	m.handoff()
	m.gap()
	s.Others = others(sc, s)
	slices.SortStableFunc(s.Marks, func(a, b Mark) int { return cmp.Compare(a.Time, b.Time) })
	if w := sc.Worst; w != nil && slices.ContainsFunc(w.Holds,
		func(h results.HoldRef) bool { return s.hold(h.User, h.Grant) == nil }) {
		s.Text = s.harmSentence(s.Text)
	}
	return s
}

// harmSentence returns the sentence of the drawn mark of harm, for a title whose own proof is not drawn.
func (s *Story) harmSentence(text string) string {
	for _, m := range s.Marks {
		if m.Say != "" && (m.Kind == MarkStale || m.Kind == MarkRefused || m.Kind == MarkRegion) {
			return capital(m.Say)
		}
	}
	return text
}

// others counts the grants of the same lock without a lane, so that readers do not take the drawn ones for all.
func others(sc *scene.Scene, s *Story) int {
	from, to := s.span()
	n := 0
	for _, e := range sc.Crowd {
		if e.Time > from && e.Time < to && s.hold(e.User, e.Op) == nil {
			n++
		}
	}
	return n
}
