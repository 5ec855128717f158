package report

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
)

// atOnce is the time (ns) within which a question and its answer are one row.
const atOnce = 20_000_000

// The weights of sentences: the heaviest ones are told.
const (
	weightTopic  = 10 // what the scenario names
	weightHarm   = 9  // two hold the lock, or harm is done
	weightTurn   = 8  // a fault, a death, a promotion
	weightGrant  = 7
	weightLoss   = 6 // somebody learns that it has nothing, or is refused
	weightAccess = 4
	weightEnd    = 3 // a release, a heal
	weightTrifle = 1
)

// lockMarker draws what the clients and the lock service said to each other.
type lockMarker struct{ *story }

// lockMarks adds what the clients and the lock service said to each other.
func (s lockMarker) lockMarks() {
	for i, e := range s.scene.events {
		lane := s.client(e.User)
		name := s.Lanes[lane].Name
		switch {
		case e.Kind == history.Acquire && e.Phase == history.Invoke:
			s.acquire(i, e, lane)
		case (e.Kind == history.Release || e.Kind == history.Check || e.Kind == history.Renew) &&
			e.Phase == history.Invoke:
			s.operation(i, e, lane)
		case e.Kind == history.Renewed, e.Kind == history.Renew && e.Phase == history.Ok:
			if h := s.hold(e.User, e.Grant); h != nil {
				h.Renewals = append(h.Renewals, e.Time)
			}
		case e.Kind == history.Lost:
			s.lost(e, lane)
		case e.Kind == history.Dead && !s.killed(clientName(e.User), 0):
			s.add(mark{
				Time: e.Time, Kind: markNote, Lane: lane, To: nowhere, Label: "process is dead", Event: "dead",
				Weight: weightTurn, Say: name + " is dead",
			})
		}
	}
	for _, h := range s.Holds {
		if h.Ref.End != 0 && !s.hasMark(h.Lane, h.Ref.End) &&
			!slices.ContainsFunc(s.scene.events, func(e history.Event) bool {
				return e.Kind == history.Dead &&
					e.User == h.Ref.User
			}) {
			s.add(mark{Time: h.Ref.End, Kind: markNote, Lane: h.Lane, To: nowhere, Label: "hold ends"})
		}
	}
}

// lost adds that a user is told that its grant is gone, and how long after the end of its validity.
func (s lockMarker) lost(e history.Event, lane int) {
	say := s.Lanes[lane].Name + " is told that it lost " + s.scene.lockName(e.Lock)
	// one without an end is later than all
	if h := s.hold(e.User, e.Grant); h != nil && h.Ref.Valid != history.ValidUnknown && h.Ref.Valid < e.Time {
		since := " after its validity ended"
		if s.sessionEnded(h.Ref) {
			since = " after its session was last seen"
		}
		say += ", " + figure.Duration(e.Time-h.Ref.Valid) + since
	}
	s.add(mark{
		Time: e.Time, Kind: markNote, Lane: lane, To: nowhere, Label: "told: grant lost", Event: "lost",
		Weight: weightLoss, Say: say,
	})
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

// answer finds the event that ended the operation that event i began.
func (s lockMarker) answer(i int) *history.Event {
	e := s.scene.events[i]
	for j := i + 1; j < len(s.scene.events); j++ {
		if f := &s.scene.events[j]; f.User == e.User && f.Op == e.Op && f.Kind == e.Kind && f.Phase != history.Invoke {
			return f
		}
	}
	return nil
}

// ended names the event that ended an operation, such as "renew ok"; f is nil where none did.
func ended(e history.Event, f *history.Event) string {
	if f == nil {
		return ""
	}
	return e.Kind.String() + " " + f.Phase.String()
}

// which adds the name of the lock to a word, in a scene of more than one lock.
func (s *story) which(word string, lock uint16) string {
	for _, e := range s.scene.events {
		if e.Kind == history.Acquire && e.Lock != lock {
			return word + " " + s.scene.lockName(lock)
		}
	}
	return word
}

// acquire adds the question for a lock and its answer.
func (s lockMarker) acquire(i int, e history.Event, lane int) {
	f, service, name := s.answer(i), s.service(), s.Lanes[lane].Name
	word, lock := s.which("acquire", e.Lock), s.scene.lockName(e.Lock)
	if f != nil && f.Phase == history.Ok {
		if h := s.hold(e.User, e.Op); h != nil {
			h.Asked = e.Time
			s.granted(e, f, h, word)
		}
		return
	}
	ask := mark{Time: e.Time, Kind: markAsk, Lane: lane, To: service, Label: word}
	why, long := s.outcome(e, f)
	say := fmt.Sprintf("%s asks for %s and is not granted it: %s", name, lock, long)
	if f == nil || f.Time-e.Time <= atOnce {
		ask.Kind, ask.Label, ask.Bad, ask.Say, ask.Weight, ask.Event = markExchange, word+": "+why, true, say,
			weightLoss, ended(e, f)
		switch {
		case f != nil:
		case s.died(e):
			ask.Kind = markAsk
		default:
			ask.Kind, ask.Label, ask.Bad = markAsk, word, false
			if s.scene.handoff != nil { // its answer lies outside of the picture
				ask.Label, ask.Say = word+", and waits", ""
			}
		}
		s.add(ask)
		return
	}
	s.add(ask)
	s.add(mark{
		// as heavy as what it waited for
		Event: ended(e, f), Time: f.Time, Kind: markAnswer, Lane: lane, To: service, Label: why, Bad: true,
		Weight: weightGrant,
		Say:    fmt.Sprintf("%s, which had asked for %s at %s, is not granted it: %s", name, lock, s.at(e.Time), long),
	})
}

// granted adds the question for a lock and the grant.
func (s lockMarker) granted(e history.Event, f *history.Event, h *bar, word string) {
	name, lock, took := s.Lanes[h.Lane].Name, s.scene.lockName(e.Lock), f.Time-e.Time
	to, at, by := s.service(), []int(nil), ""
	have := s.scene.keepers(h.Ref)
	if who := s.scene.answered(h.Ref, have); len(who) > 0 {
		by = " by " + figure.List(brief(who))
		seen := have
		if len(seen) == 0 { // nobody looked
			seen = who
		}
		for _, n := range seen {
			if l := s.node(n); l >= 0 {
				at = append(at, l)
			}
		}
		if len(at) > 0 {
			to = s.farthest(h.Lane, at)
		}
		if silent := slices.DeleteFunc(slices.Clone(have),
			func(n string) bool { return slices.Contains(who, n) }); len(silent) > 0 {
			by += " (" + figure.List(silent) + " " + map[bool]string{true: "has", false: "have"}[len(silent) == 1] +
				" the key, too, but no answer came)"
		}
	}
	label, say, weight := "granted", "", weightGrant
	if w := s.scene.worst; w != nil && slices.ContainsFunc(w.Holds,
		func(x results.HoldRef) bool { return same(x, h.Ref) }) {
		weight = weightTurn // without it nobody understands what is told of the two
	}
	if h.Ref.Token != 0 {
		label = fmt.Sprintf("granted, token %d", h.Ref.Token)
		say = fmt.Sprintf(", with token %d", h.Ref.Token)
	}
	switch v := f.Valid; v {
	case history.ValidUnknown:
	case history.ValidEndless:
		say += ", without an end"
	default:
		say += ", valid until " + s.at(v)
		if renewed := h.Ref.Valid; renewed > v {
			say += " and then renewed"
		}
		if took > atOnce && v > f.Time {
			say += " (" + figure.Duration(v-f.Time) + " left)"
		}
	}
	if took <= atOnce {
		s.add(mark{
			Event: ended(e, f), Time: f.Time, Kind: markExchange, Lane: h.Lane, To: to, At: at,
			Label: word + ": " + label, Weight: weight,
			Say: fmt.Sprintf("%s asks for %s and is granted it%s%s", name, lock, by, say),
		})
		h.Asked = f.Time
		return
	}
	s.add(mark{
		Time: e.Time, Kind: markAsk, Lane: h.Lane, To: to, Label: word, Weight: weightTrifle,
		Say: name + " asks for " + lock,
	})
	s.add(mark{
		Event: ended(e, f), Time: f.Time, Kind: markAnswer, Lane: h.Lane, To: to, At: at, Label: label, Weight: weight,
		Say: fmt.Sprintf("%s, which had asked at %s, is granted %s%s%s", name, s.at(e.Time), lock, by, say),
	})
}

// farthest is the one of some lanes that is the farthest from a lane.
func (s lockMarker) farthest(from int, lanes []int) int {
	return slices.MaxFunc(lanes, func(a, b int) int { return max(a-from, from-a) - max(b-from, from-b) })
}

// operation adds a release, a check, or a renewal that the user itself asked for. An answer that came later stands at
// its own time.
func (s lockMarker) operation(i int, e history.Event, lane int) {
	f := s.answer(i)
	why, long := s.outcome(e, f)
	name, lock := s.Lanes[lane].Name, s.scene.lockName(e.Lock)
	verb := map[history.Kind]string{
		history.Release: "releases", history.Check: "asks whether it still has",
		history.Renew: "renews",
	}[e.Kind]
	m := mark{
		Event: ended(e, f), Time: e.Time, Kind: markAsk, Lane: lane, To: s.service(),
		Label: s.which(e.Kind.String(), e.Lock), Bad: why != "",
		Say: fmt.Sprintf("%s %s %s", name, verb, lock), Weight: weightEnd,
	}
	if e.Kind == history.Check && why == "" {
		why, long = "yes", "yes"
	}
	late := f != nil && f.Time-e.Time > atOnce && (why != "" || e.Kind == history.Release)
	switch {
	case late:
		m.Bad, m.Event = false, ""
	case why != "":
		m.Label += ": " + why
		m.Say += ": " + long
		m.Weight = weightLoss
	}
	if e.Kind == history.Renew && why == "" {
		m.Weight = weightTrifle
	}
	if e.Kind == history.Check && !m.Bad {
		m.Weight = weightAccess
	}
	if whose := s.victim(e); e.Kind == history.Release && whose.name != "" {
		m.Label, m.Bad, m.Weight = "foreign release: frees what is "+whose.name+"'s", true, weightHarm
		m.Say = fmt.Sprintf("%s, whose time was over, releases %s, and frees what is %s's%s: FOREIGN RELEASE", name,
			lock, whose.name, whose.why)
	}
	s.add(m)
	if late {
		bad := f.Phase != history.Ok
		if why == "" {
			why, long = "done", "it is done"
		}
		s.add(mark{
			Event: ended(e, f), Time: f.Time, Kind: markAnswer, Lane: lane, To: m.To, Label: why, Bad: bad,
			Weight: weightLoss,
			Say:    fmt.Sprintf("%s, which %s %s at %s, is told: %s", name, asked[e.Kind], lock, s.at(e.Time), long),
		})
	}
}

// asked is what was asked, once the answer comes.
var asked = map[history.Kind]string{
	history.Release: "released", history.Check: "had asked whether it still has",
	history.Renew: "had asked to renew",
}

// victim returns whose lock a release freed, as the judge found it; without a name where that is nobody.
func (s lockMarker) victim(release history.Event) (v victim) {
	for w := range witnesses(s.scene.report, results.DrawRelease) {
		if w.From == release.Time && len(w.Holds) > 0 && w.Holds[0].User != release.User {
			v.name = s.scene.name(w.Holds[0].User)
			theirs := s.scene.reasons[reasonKey{true, w.Holds[0].User, w.Holds[0].Grant}]
			own := s.scene.reasons[reasonKey{true, release.User, release.Grant}]
			if own.Code == history.CauseOwnerValue && theirs.Code == own.Code && theirs.Value == own.Value &&
				theirs.Token == own.Token {
				v.why = fmt.Sprintf(" (the value at the key is %d-%d for both)", own.Value, own.Token)
			}
			return v
		}
	}
	return v
}

// victim is whose lock a foreign release freed, and why, where the lock told.
type victim struct{ name, why string }

// at writes a time as explanations do.
func (s *story) at(t int64) string { return fmt.Sprintf("t+%.3f s", float64(t-s.Start)/1e9) }
