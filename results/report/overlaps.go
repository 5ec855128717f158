package report

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
)

// overlapMarker draws where holds overlap, and when their validities end.
type overlapMarker struct{ *story }

// overlaps marks where two holds overlap. In a story that is every pair that the judge found, else the pair with the
// longest overlap, entitled overlaps first.
func (s overlapMarker) overlaps() {
	if !s.scene.whole {
		s.longest()
		return
	}
	for w := range witnesses(s.scene.report, results.DrawEntitled, results.DrawOverlap) {
		if len(w.Holds) != 2 {
			continue
		}
		a, b := s.hold(w.Holds[0].User, w.Holds[0].Grant), s.hold(w.Holds[1].User, w.Holds[1].Grant)
		if a != nil && b != nil {
			s.region(s.common(*a, *b, drawing(*w) == results.DrawEntitled))
		}
	}
}

// common is the time that two holds have in common; of a double grant, the time in which both were entitled.
func (s overlapMarker) common(a, b bar, double bool) region {
	r := region{
		A: a.Lane, B: b.Lane, From: max(a.Ref.Start, b.Ref.Start), To: min(s.end(a.Ref), s.end(b.Ref)),
		Double: double,
	}
	if double {
		r.To = min(r.To, a.Ref.Valid, b.Ref.Valid)
	}
	return r
}

func (s overlapMarker) longest() {
	var best *region
	for i, a := range s.Holds {
		for _, b := range s.Holds[i+1:] {
			if a.Ref.User == b.Ref.User {
				continue
			}
			for _, double := range []bool{true, false} {
				if r := s.common(a, b, double); r.To > r.From && (best == nil || r.Double && !best.Double) {
					best = &r
				}
			}
		}
	}
	if best != nil {
		s.region(*best)
	}
}

// region adds an overlap and its mark.
func (s overlapMarker) region(r region) {
	if r.To <= r.From {
		return
	}
	s.Regions = append(s.Regions, r)
	long := figure.Duration(r.To - r.From)
	a, b := s.Lanes[r.A].Name, s.Lanes[r.B].Name
	m := mark{
		Time: r.From, Kind: markRegion, Lane: r.A, To: r.B, Weight: weightHarm, Label: "both inside for " + long +
			": overlapping hold",
		Say: fmt.Sprintf("%s and %s are both inside for %s, one of them past its validity: overlapping hold", a, b,
			long),
	}
	if r.Double {
		m.Label = "both entitled for " + long + ": DOUBLE GRANT"
		m.Say = fmt.Sprintf("%s and %s both have the lock, both entitled, for %s: DOUBLE GRANT", a, b, long)
	}
	s.add(m)
}

// isDouble tells whether a double grant is drawn.
func (s overlapMarker) isDouble() bool {
	for _, r := range s.Regions {
		if r.Double {
			return true
		}
	}
	return false
}

// validityMarks adds the ends of validity: within a hold always, after it only where entitlement is the point.
func (s overlapMarker) validityMarks() {
	_, to := s.span()
	for _, h := range s.Holds {
		if s.scene.whole && !s.matters(h.Ref) {
			continue
		}
		name := s.Lanes[h.Lane].Name
		m := mark{Time: h.Ref.Valid, Kind: markNote, Lane: h.Lane, To: nowhere}
		switch v := h.Ref.Valid; {
		case v == history.ValidUnknown || v == history.ValidEndless:
			continue
		case h.Ref.End == 0 && v > to+(to-h.Ref.Start):
			continue // so far behind the picture that it would only stretch it
		case v <= h.Ref.Start: // the answer came too late, or nobody can say how long the session stood
			m.Time, m.Label, m.Weight = h.Ref.Start, "not known to be entitled", weightLoss
			m.Say = "the validity of " + name + " was over before it had the lock in hand"
			if s.sessionEnded(h.Ref) {
				m.Label = "entitled until its session ends"
				m.Say = name + " is entitled until its session ends; the server was not asked about that session after " + name + " had the lock in hand"
			}
		case (h.Ref.End == 0 || v <= h.Ref.End) && s.sessionEnded(h.Ref):
			m.Label, m.Weight = "session last seen standing", weightLoss
			m.Say = "the session of " + name + " is seen standing for the last time; nothing shows that " + name +
				" is entitled from here on, and it is still inside"
		case h.Ref.End == 0 || v <= h.Ref.End:
			m.Label, m.Say, m.Weight = "validity ends", "the validity of "+name+" ends, and it is still inside",
				weightLoss
		case s.isDouble():
			m.Label = "validity would end"
		default:
			continue
		}
		s.add(m)
	}
}

// sessionEnded reports whether a hold without an end was over because nobody saw its session standing after that.
func (s *story) sessionEnded(h results.HoldRef) bool {
	return slices.ContainsFunc(s.scene.events, func(e history.Event) bool {
		return e.Kind == history.Ended && e.User == h.User && e.Grant == h.Grant &&
			(e.Valid == h.Valid || e.Time <= h.Start)
	})
}

// matters tells whether the end of a hold's validity says anything: it lies within the hold, or the hold is one of an
// overlap.
func (s overlapMarker) matters(h results.HoldRef) bool {
	if h.End == 0 || h.Valid <= h.End {
		return true
	}
	lane := s.client(h.User)
	for _, r := range s.Regions {
		if (r.A == lane || r.B == lane) && r.From < s.end(h) && h.Start < r.To {
			return true
		}
	}
	return false
}
