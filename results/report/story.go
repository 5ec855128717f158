package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// A story is what a picture tells, before anything has a place: who takes part, and what happens in which order.
// Nothing in it is invented: each mark stands for an event, a fault record or a validity of the run.
type story struct {
	Kind    string
	Title   string
	Text    string
	Foot    string
	Start   int64 // ns: zero of the axis
	Ordered bool  // the lock's token is the service's own, so it may order what time leaves open
	Lanes   []lane
	Holds   []bar
	Bands   []band
	Region  *region
	Marks   []mark // in the order of time
	Others  int    // grants to users that are not drawn, within the time of the picture
	Skipped int    // accesses of the drawn holds that are not drawn
}

type laneKind uint8

const (
	laneClient laneKind = iota
	laneService
	laneResource
)

// lane is one taker of part.
type lane struct {
	Kind laneKind
	Name string
	Sub  string
	User history.User // of a client
	Hue  int          // of a client: index of its colour
}

// bar is one hold.
type bar struct {
	Ref      results.HoldRef
	Lane     int
	Asked    int64   // ns: acquire invoke
	Renewals []int64 // ns
}

// band is a fault on a lane.
type band struct {
	Lane     int
	From, To int64 // ns; To 0: never healed
}

// region is the time in which two holds overlap.
type region struct {
	A, B     int // lanes
	From, To int64
	Double   bool // both were entitled
}

type markKind uint8

const (
	markRequest markKind = iota // client to service
	markReply                   // service to client
	markRead
	markWrite
	markStale
	markRefused
	markNote // words beside a lane
	markFault
	markSent // an access leaves its client, long before its effect
	markRegion
)

// mark is one row of the picture.
type mark struct {
	Time  int64
	Since int64 // ns: when an access left its client, if that was notably earlier; else 0
	Kind  markKind
	Lane  int // whose it is
	To    int // far end of an arrow
	Label string
	Below string // second line, under the arrow
}

type key struct {
	user  history.User
	grant uint32
}

// tell makes the story of a witness.
func tell(events []history.Event, faults []history.Fault, w results.Witness, env results.Env) (*story, error) {
	if len(w.Holds) == 0 {
		return nil, fmt.Errorf("witness %q names no holds: nothing to draw", w.Kind)
	}
	s := &story{Kind: w.Kind, Title: title(w), Text: w.Text, Foot: foot(env), Start: env.Start, Ordered: env.Token == "service"}
	holds := slices.Clone(w.Holds)
	slices.SortStableFunc(holds, func(a, b results.HoldRef) int { return cmp.Compare(a.Start, b.Start) })
	hasResource := env.Resource != "" || slices.ContainsFunc(events, isEffect)
	s.lanes(holds, env, hasResource)
	for _, h := range holds {
		s.Holds = append(s.Holds, bar{Ref: h, Lane: s.client(h.User)})
	}
	s.lockMarks(events)
	s.accessMarks(events)
	s.overlap()
	s.validityMarks()
	s.faultMarks(faults, env)
	s.others(events, w)
	slices.SortStableFunc(s.Marks, func(a, b mark) int { return cmp.Compare(a.Time, b.Time) })
	return s, nil
}

func isEffect(e history.Event) bool {
	return e.Kind == history.EffectRead || e.Kind == history.EffectWrite
}

// title is the headline of a kind of witness.
func title(w results.Witness) string {
	switch w.Kind {
	case "double_grant":
		return "Double grant: two clients hold " + w.Lock + ", both entitled"
	case "stale_write":
		return "Stale write: a holder whose time was over writes after its successor"
	case "fence_save":
		return "Fence save: the resource refuses a holder whose time was over"
	case "overlapping_hold":
		return "Overlapping hold: two clients are inside, one past its validity"
	}
	return strings.ReplaceAll(w.Kind, "_", " ")
}

// foot says what was run.
func foot(env results.Env) string {
	parts := []string{env.Scenario}
	if env.Backend != "" {
		parts = append(parts, strings.TrimSuffix(env.Backend+", lock "+env.Lock, ", lock "))
	}
	if env.TTL > 0 {
		parts = append(parts, "TTL "+duration(env.TTL))
	}
	if env.Resource != "" {
		parts = append(parts, "guard "+cmp.Or(env.Guard, "none"))
	}
	return strings.Join(append(parts, fmt.Sprintf("seed %d", env.Seed)), " · ")
}

// lanes puts the first holder to the left, the service and the resource in the middle, so that no arrow crosses a
// hold, and everybody else to the right.
func (s *story) lanes(holds []results.HoldRef, env results.Env, hasResource bool) {
	service := lane{Kind: laneService, Name: "lock service", Sub: cmp.Or(env.Backend, "unknown")}
	resource := lane{Kind: laneResource, Name: "resource", Sub: cmp.Or(env.Resource, "register") + ", guard " + cmp.Or(env.Guard, "none")}
	for _, h := range holds {
		if s.client(h.User) >= 0 {
			continue
		}
		hue := 0
		for _, l := range s.Lanes {
			if l.Kind == laneClient {
				hue++
			}
		}
		s.Lanes = append(s.Lanes, lane{
			Kind: laneClient, Name: fmt.Sprintf("client-%d", h.User.Client()+1),
			Sub: fmt.Sprintf("user %d", h.User.Index()), User: h.User, Hue: hue,
		})
		if len(s.Lanes) == 1 {
			s.Lanes = append(s.Lanes, service)
			if hasResource {
				s.Lanes = append(s.Lanes, resource)
			}
		}
	}
}

// client finds the lane of a user; -1 where it has none.
func (s *story) client(u history.User) int {
	return slices.IndexFunc(s.Lanes, func(l lane) bool { return l.Kind == laneClient && l.User == u })
}

func (s *story) lane(k laneKind) int {
	return slices.IndexFunc(s.Lanes, func(l lane) bool { return l.Kind == k })
}

func (s *story) add(m mark) { s.Marks = append(s.Marks, m) }

// span is the time of the drawn holds.
func (s *story) span() (from, to int64) {
	for i, h := range s.Holds {
		if i == 0 || h.Ref.Start < from {
			from = h.Ref.Start
		}
		to = max(to, h.Ref.End, h.Ref.Start)
	}
	for _, m := range s.Marks {
		to = max(to, m.Time)
	}
	return from, to
}

// overlap finds the pair of holds with the longest overlap, entitled overlaps first.
func (s *story) overlap() {
	for i, a := range s.Holds {
		for _, b := range s.Holds[i+1:] {
			if a.Ref.User == b.Ref.User {
				continue
			}
			from := max(a.Ref.Start, b.Ref.Start)
			inside := region{A: a.Lane, B: b.Lane, From: from, To: min(s.end(a.Ref), s.end(b.Ref))}
			entitled := inside
			entitled.Double = true
			entitled.To = min(inside.To, a.Ref.Valid, b.Ref.Valid)
			for _, r := range []region{entitled, inside} {
				if r.To > r.From && (s.Region == nil || r.Double && !s.Region.Double) {
					s.Region = &r
				}
			}
		}
	}
	if r := s.Region; r != nil {
		label := "both inside for " + duration(r.To-r.From) + ": overlapping hold"
		if r.Double {
			label = "both entitled for " + duration(r.To-r.From) + ": DOUBLE GRANT"
		}
		s.add(mark{Time: r.From, Kind: markRegion, Lane: r.A, To: r.B, Label: label})
	}
}

// end is the end of a hold, or of the picture where it has none.
func (s *story) end(h results.HoldRef) int64 {
	if h.End != 0 {
		return h.End
	}
	_, to := s.span()
	return to
}

// others counts the grants of the same lock that have no lane, so that nobody takes the drawn ones for all.
func (s *story) others(events []history.Event, w results.Witness) {
	from, to := s.span()
	drawn := map[key]bool{}
	for _, h := range w.Holds {
		drawn[key{h.User, h.Grant}] = true
	}
	for _, e := range events {
		if e.Kind == history.Acquire && e.Phase == history.Ok && e.Time > from && e.Time < to && !drawn[key{e.User, e.Op}] {
			s.Others++
		}
	}
}
