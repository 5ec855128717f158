package story

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/scene"
)

// overlapMarker draws overlaps of holds, and the ends of their validities.
type overlapMarker marker

// overlaps marks where two holds overlap: in a story every pair that the judge found, else the pair with the longest
// overlap, entitled overlaps first.
func (mk overlapMarker) overlaps() {
	if n := mk.scene.Env.Permits; n > 1 {
		mk.surplus(n)
		return
	}
	if !mk.scene.Whole {
		mk.longest()
		return
	}
	for w := range scene.Witnesses(mk.scene.Report, results.DrawEntitled, results.DrawOverlap) {
		if len(w.Holds) != 2 {
			continue
		}
		a, b := mk.story.hold(w.Holds[0].User, w.Holds[0].Grant), mk.story.hold(w.Holds[1].User, w.Holds[1].Grant)
		if a != nil && b != nil {
			mk.region(mk.common(*a, *b, scene.Drawing(*w) == results.DrawEntitled))
		}
	}
}

// surplus marks the moments at which more users had a lock than it has permits: two of them alone may overlap.
func (mk overlapMarker) surplus(permits int) {
	for w := range scene.Witnesses(mk.scene.Report, results.DrawEntitled, results.DrawOverlap) {
		last := w.Holds[len(w.Holds)-1]
		h := mk.story.hold(last.User, last.Grant)
		if h == nil {
			continue
		}
		inside, what := fmt.Sprintf("%d inside, %d permits", len(w.Holds), permits), "overlapping hold"
		if scene.Drawing(*w) == results.DrawEntitled {
			what = "DOUBLE GRANT"
		}
		mk.story.add(Mark{
			Time: w.From, Kind: MarkNote, Lane: h.Lane, To: nowhere, Weight: weightHarm, Label: inside + ": " + what,
			Say: inside + ": " + what,
		})
	}
}

// common returns the overlap of two holds; for a double grant, the time in which both were entitled.
func (mk overlapMarker) common(a, b Bar, double bool) Region {
	r := Region{
		A: a.Lane, B: b.Lane, From: max(a.Ref.Start, b.Ref.Start), To: min(mk.story.end(a.Ref), mk.story.end(b.Ref)),
		Double: double,
	}
	if double {
		r.To = min(r.To, a.Ref.Valid, b.Ref.Valid)
	}
	return r
}

func (mk overlapMarker) longest() {
	var best *Region
	for i, a := range mk.story.Holds {
		for _, b := range mk.story.Holds[i+1:] {
			if a.Ref.User == b.Ref.User {
				continue
			}
			for _, double := range []bool{true, false} {
				if r := mk.common(a, b, double); r.To > r.From && (best == nil || r.Double && !best.Double) {
					best = &r
				}
			}
		}
	}
	if best != nil {
		mk.region(*best)
	}
}

// region adds an overlap and its mark.
func (mk overlapMarker) region(r Region) {
	if r.To <= r.From {
		return
	}
	mk.story.Regions = append(mk.story.Regions, r)
	long := figure.Duration(r.To - r.From)
	a, b := mk.story.Lanes[r.A].Name, mk.story.Lanes[r.B].Name
	m := Mark{
		Time: r.From, Kind: MarkRegion, Lane: r.A, To: r.B, Weight: weightHarm, Label: "both inside for " + long +
			": overlapping hold",
		Say: fmt.Sprintf("%s and %s are both inside for %s, one of them past its validity: overlapping hold", a, b,
			long),
	}
	if r.Double {
		m.Label = "both entitled for " + long + ": DOUBLE GRANT"
		m.Say = fmt.Sprintf("%s and %s both have the lock, both entitled, for %s: DOUBLE GRANT", a, b, long)
	}
	mk.story.add(m)
}

// isDouble reports whether a double grant is drawn.
func (mk overlapMarker) isDouble() bool {
	for _, r := range mk.story.Regions {
		if r.Double {
			return true
		}
	}
	return false
}

// validityMarks adds the ends of validity: within a hold always, after it only if entitlement is the point.
func (mk overlapMarker) validityMarks() {
	_, to := mk.story.span()
	for _, h := range mk.story.Holds {
		if mk.scene.Whole && !mk.matters(h.Ref) {
			continue
		}
		name := mk.story.Lanes[h.Lane].Name
		m := Mark{Time: h.Ref.Valid, Kind: MarkNote, Lane: h.Lane, To: nowhere}
		switch v := h.Ref.Valid; {
		case v == history.ValidUnknown || v == history.ValidEndless:
			continue
		case h.Ref.End == 0 && v > to+(to-h.Ref.Start):
			continue // so far after the picture that it would only stretch it
		case v <= h.Ref.Start: // the answer came too late, or the session's length is unknown
			m.Time, m.Label, m.Weight = h.Ref.Start, "not known to be entitled", weightLoss
			m.Say = "the validity of " + name + " was over before it had the lock in hand"
			if mk.scene.SessionEnded(h.Ref) {
				m.Label = "entitled until its session ends"
				m.Say = name + " is entitled until its session ends; the server was not asked about that session after " + name + " had the lock in hand"
			}
		case (h.Ref.End == 0 || v <= h.Ref.End) && mk.scene.SessionEnded(h.Ref):
			m.Label, m.Weight = "session last seen alive", weightLoss
			m.Say = "the session of " + name + " is seen alive for the last time; nothing shows that " + name +
				" is entitled from here on, and it is still inside"
		case h.Ref.End == 0 || v <= h.Ref.End:
			m.Label, m.Say, m.Weight = "validity ends", "the validity of "+name+" ends, and it is still inside",
				weightLoss
		case mk.isDouble():
			m.Label = "validity would have ended"
		default:
			continue
		}
		mk.story.add(m)
	}
}

// matters reports whether the end of a hold's validity is significant: it lies within the hold, or the hold is one of
// an overlap.
func (mk overlapMarker) matters(h results.HoldRef) bool {
	if h.End == 0 || h.Valid <= h.End {
		return true
	}
	lane := mk.story.Lanes.client(h.User)
	for _, r := range mk.story.Regions {
		if (r.A == lane || r.B == lane) && r.From < mk.story.end(h) && h.Start < r.To {
			return true
		}
	}
	return false
}
