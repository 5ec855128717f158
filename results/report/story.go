package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
)

// A story is what a picture tells, before anything has a place: who takes part, and what happens in which order.
// Each mark stands for an event, a fault record, a server's answer, or a validity of the run.
type story struct {
	Title   string
	Text    string
	InAll   string // figures that the scenario names and that have no time
	Foot    string
	Backend string
	NoLock  bool
	Start   int64 // ns: zero of the axis
	Lanes   lanes
	Holds   []bar
	Bands   []band
	Serves  []band // when a server certainly took writes
	Regions []region
	Marks   []mark // in the order of time
	Others  int    // grants to users that are not drawn, within the time of the picture
	Skipped int    // accesses of the drawn holds that are not drawn
}

type laneKind uint8

const (
	laneClient  laneKind = iota
	laneService          // the whole lock service
	laneNode             // one of its servers
	laneResource
)

// lane is one participant.
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

// band is a stretch of time on a lane.
type band struct {
	Lane     int
	From, To int64 // ns; To 0: to the end
}

// region is the time in which two holds overlap.
type region struct {
	A, B     int // lanes
	From, To int64
	Double   bool // both were entitled
}

type markKind uint8

const (
	markAsk      markKind = iota // client to service
	markAnswer                   // service to client
	markExchange                 // both, one right after the other
	markRead
	markWrite
	markStale
	markRefused
	markNote // words beside a lane
	markFault
	markSeen // what a server said
	markSent // an access leaves its client, long before its effect
	markRegion
)

// Where an arrow ends that ends at no lane.
const (
	nowhere   = -1
	atService = -2 // the lock service, nobody knows at which server
)

// mark is one row of the picture.
type mark struct {
	Time  int64
	Since int64 // ns: when an access left its client, if that was notably earlier; else 0
	Kind  markKind
	Lane  int   // whose it is
	To    int   // far end of an arrow
	At    []int // lanes of the servers that a grant was seen at; To is the farthest
	Bad   bool  // it was not done
	Label string
	Below string // second line, under the arrow
	Event string // what happened in the history, such as "renew ok"; "" for all else
	// Say is the same as a sentence, "" where it is not worth one; the weightiest sentences are told.
	Say    string
	Weight int
}

// marker adds marks to a story: what a scene has to tell of one subject.
type marker struct {
	scene *scene
	story *story
}

// tell makes the story of a scene.
func tell(sc *scene) *story {
	s := &story{
		Title: headed(sc, title(sc)), Text: text(sc), Foot: foot(sc.env), Backend: sc.env.Backend,
		NoLock: sc.env.NoLock, Start: sc.env.Start, Lanes: lanesOf(sc),
	}
	for _, h := range sc.holds {
		if sc.env.NoLock { // a user at work, with nothing that could end
			h.Issued, h.Valid = h.Start, history.ValidEndless
		}
		s.Holds = append(s.Holds, bar{Ref: h, Lane: s.Lanes.client(h.User), Asked: h.Issued})
	}
	m := marker{sc, s}
	if !sc.env.NoLock {
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
	slices.SortStableFunc(s.Marks, func(a, b mark) int { return cmp.Compare(a.Time, b.Time) })
	if w := sc.worst; w != nil && slices.ContainsFunc(w.Holds,
		func(h results.HoldRef) bool { return s.hold(h.User, h.Grant) == nil }) {
		s.Text = s.harmSentence(s.Text)
	}
	return s
}

// harmSentence is the sentence of the drawn mark that tells of harm, for a title whose own proof is not drawn.
func (s *story) harmSentence(text string) string {
	for _, m := range s.Marks {
		if m.Say != "" && (m.Kind == markStale || m.Kind == markRefused || m.Kind == markRegion) {
			return capital(m.Say)
		}
	}
	return text
}

// isEffect tells whether the resource did or refused something. What only a minority of its replicas did does not
// count.
func isEffect(e history.Event) bool {
	return (e.Kind == history.EffectRead || e.Kind == history.EffectWrite) && e.Phase != history.Info
}

// title is the headline: what was found.
func title(sc *scene) string {
	if n := sc.report.Counts["double_grants"]; sc.whole && n != nil && *n > 1 {
		title := figure.Of(*n, "double grant") + " of " + sc.lock()
		if f := sc.report.Counts["foreign_releases"]; f != nil && *f > 1 {
			title += ", in a cascade of " + figure.Of(*f, "foreign release")
		}
		return title
	}
	if sc.cause != nil {
		freed := sc.name(sc.cause.Events[slices.IndexFunc(sc.cause.Events, func(e history.Event) bool {
			return e.Kind == history.Release && e.Time == sc.cause.From
		})].User)
		return "Double grant: " + freed + " frees what is " + sc.name(sc.worst.Holds[0].User) + "'s, and " +
			sc.name(sc.worst.Holds[1].User) + " is let in"
	}
	if sc.worst != nil {
		return capital(headline(*sc.worst, sc))
	}
	clean := "nothing was granted twice"
	for _, name := range []string{"double_grants", "overlapping_holds"} {
		if n := sc.report.Counts[name]; n == nil || *n > 0 {
			clean = ""
		}
	}
	found := ""
	switch n := sc.report.Counts["stuck_locks"]; {
	case n != nil && *n > 0:
		found = "Stuck lock: somebody asks for " + sc.lock() + ", and nobody gets it"
	case sc.gap != nil:
		found, _, _ = strings.Cut(sc.gap.Text, ": ") // the reason stands below
		found, _, _ = strings.Cut(found, "; ")
	case sc.handoff != nil:
		found = "A handoff, while " + strconv.Itoa(sc.handoff.waiting) + " wait: " + figure.Duration(sc.handoff.long())
	}
	switch {
	case found != "" && clean != "":
		return found + "; " + clean
	case found != "":
		return found
	case clean != "":
		return capital(clean)
	}
	return sc.env.Scenario
}

// exactMS is a time to the microsecond, which nobody reads in a sentence.
var exactMS = regexp.MustCompile(`\b([0-9]+\.[0-9])[0-9]{2} ms`)

// text says it in a sentence.
func text(sc *scene) string {
	if sc.worst != nil {
		t := sc.named(sc.worst.Text)
		if sc.cause != nil {
			t = sc.named(sc.cause.Text) + ". Then " + t
		}
		return capital(exactMS.ReplaceAllString(t, "$1 ms"))
	}
	if sc.gap != nil {
		return sc.gap.Text
	}
	return strings.Join(strings.Fields(sc.report.Claim), " ")
}

// foot says what was run.
func foot(env results.Env) string {
	parts := []string{env.Scenario}
	if env.Backend != "" {
		parts = append(parts, strings.TrimSuffix(env.Backend+", lock "+env.Lock, ", lock "))
	}
	if env.TTL > 0 {
		parts = append(parts, "TTL "+figure.Duration(env.TTL))
	}
	if env.Resource != "" {
		parts = append(parts, "guard "+cmp.Or(env.Guard, "none"))
	}
	if env.Provider != "" {
		parts = append(parts, env.Provider)
	}
	return strings.Join(append(parts, fmt.Sprintf("seed %d", env.Seed)), " · ")
}

func (s *story) add(m mark) { s.Marks = append(s.Marks, m) }

// span is the time of the drawn holds and marks.
func (s *story) span() (from, to int64) {
	for i, h := range s.Holds {
		if i == 0 || h.Ref.Start < from {
			from = h.Ref.Start
		}
		to = max(to, h.Ref.End, h.Ref.Start)
	}
	for _, m := range s.Marks {
		if from == 0 || m.Time < from {
			from = m.Time
		}
		to = max(to, m.Time)
	}
	return from, to
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
func others(sc *scene, s *story) int {
	from, to := s.span()
	drawn := map[key]bool{}
	for _, h := range s.Holds {
		drawn[key{h.Ref.User, h.Ref.Grant}] = true
	}
	n := 0
	for _, e := range sc.crowd {
		if e.Time > from && e.Time < to && !drawn[key{e.User, e.Op}] {
			n++
		}
	}
	return n
}

// hold finds the bar of a grant.
func (s *story) hold(u history.User, grant uint32) *bar {
	i := slices.IndexFunc(s.Holds, func(h bar) bool { return h.Ref.User == u && h.Ref.Grant == grant })
	if i < 0 {
		return nil
	}
	return &s.Holds[i]
}

func (s *story) hasMark(lane int, t int64) bool {
	return slices.ContainsFunc(s.Marks, func(m mark) bool { return m.Lane == lane && m.Time == t })
}

// moment writes a time as explanations do.
func (s *story) moment(t int64) string { return fmt.Sprintf("t+%.3f s", float64(t-s.Start)/1e9) }
