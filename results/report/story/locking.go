package story

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/scene"
)

// atOnce is the maximum time (ns) between a question and its answer in one row.
const atOnce = 20_000_000

// lockMarker draws the messages between the clients and the lock service.
type lockMarker marker

// lockMarks adds the messages between the clients and the lock service.
func (mk lockMarker) lockMarks() {
	for i, e := range mk.scene.Events {
		lane := mk.story.Lanes.client(e.User)
		name := mk.story.Lanes[lane].Name
		switch {
		case e.Kind == history.Acquire && e.Phase == history.Invoke:
			mk.acquire(i, e, lane)
		case operations[e.Kind] != "" && e.Phase == history.Invoke:
			mk.operation(i, e, lane)
		case e.Kind == history.Renewed,
			(e.Kind == history.Renew || e.Kind == history.Reenter) && e.Phase == history.Ok:
			if h := mk.story.hold(e.User, e.Grant); h != nil {
				h.Renewals = append(h.Renewals, e.Time)
			}
		case e.Kind == history.Lost:
			mk.lost(e, lane)
		case e.Kind == history.Dead && !mk.killed(history.ClientName(e.User.Client()), 0):
			mk.story.add(Mark{
				Time: e.Time, Kind: MarkNote, Lane: lane, To: nowhere, Label: "process is dead", Event: "dead",
				Weight: weightTurn, Say: name + " is dead",
			})
		}
	}
	for _, h := range mk.story.Holds {
		if h.Ref.End != 0 && !mk.story.HasMark(h.Lane, h.Ref.End) &&
			!slices.ContainsFunc(mk.scene.Events, func(e history.Event) bool {
				return e.Kind == history.Dead &&
					e.User == h.Ref.User
			}) {
			mk.story.add(Mark{Time: h.Ref.End, Kind: MarkNote, Lane: h.Lane, To: nowhere, Label: "hold ends"})
		}
	}
}

// lost adds that a user is notified that its grant is gone, and how long after the end of its validity.
func (mk lockMarker) lost(e history.Event, lane int) {
	say := mk.story.Lanes[lane].Name + " learns that it lost " + mk.scene.LockName(e.Lock)
	// one without an end is later than all
	if h := mk.story.hold(e.User, e.Grant); h != nil && h.Ref.Valid != history.ValidUnknown && h.Ref.Valid < e.Time {
		since := " after its validity ended"
		if mk.scene.SessionEnded(h.Ref) {
			since = " after its session was last seen"
		}
		say += ", " + figure.Duration(e.Time-h.Ref.Valid) + since
	}
	mk.story.add(Mark{
		Time: e.Time, Kind: MarkNote, Lane: lane, To: nowhere, Label: "learns: grant lost", Event: "lost",
		Weight: weightLoss, Say: say,
	})
}

// service returns the lane of messages to the lock service if the server that took them is unknown: the only one, or
// the whole group.
func (mk lockMarker) service() int {
	if l := mk.story.Lanes.kind(LaneService); l >= 0 {
		return l
	}
	if len(mk.scene.Seen.Asked()) == 1 {
		return mk.story.Lanes.kind(LaneNode)
	}
	return AtService
}

// answer returns the event that ended the operation that event i began.
func (mk lockMarker) answer(i int) *history.Event {
	e := mk.scene.Events[i]
	for j := i + 1; j < len(mk.scene.Events); j++ {
		if f := &mk.scene.Events[j]; f.User == e.User && f.Op == e.Op && f.Kind == e.Kind && f.Phase != history.Invoke {
			return f
		}
	}
	return nil
}

// ended names the event that ended an operation, such as "renew ok"; f is nil without one.
func ended(e history.Event, f *history.Event) string {
	if f == nil {
		return ""
	}
	return e.Kind.String() + " " + f.Phase.String()
}

// acquire adds a request for a lock and its answer.
func (mk lockMarker) acquire(i int, e history.Event, lane int) {
	f, service, name := mk.answer(i), mk.service(), mk.story.Lanes[lane].Name
	word, lock := mk.scene.Which("acquire", e.Lock), mk.scene.LockName(e.Lock)
	if f != nil && f.Phase == history.Ok {
		if h := mk.story.hold(e.User, e.Op); h != nil {
			h.Asked = e.Time
			mk.granted(e, f, h, word)
		}
		return
	}
	ask := Mark{Time: e.Time, Kind: MarkAsk, Lane: lane, To: service, Label: word}
	why, long := mk.outcome(e, f)
	say := fmt.Sprintf("%s asks for %s without a grant: %s", name, lock, long)
	if f == nil || f.Time-e.Time <= atOnce {
		ask.Kind, ask.Label, ask.Bad, ask.Say, ask.Weight, ask.Event = MarkExchange, word+": "+why, true, say,
			weightLoss, ended(e, f)
		switch {
		case f != nil:
		case mk.died(e):
			ask.Kind = MarkAsk
		default:
			ask.Kind, ask.Label, ask.Bad = MarkAsk, word, false
			if mk.scene.Handoff != nil { // its answer lies outside of the picture
				ask.Label, ask.Say = word+", and waits", ""
			}
		}
		mk.story.add(ask)
		return
	}
	mk.story.add(ask)
	mk.story.add(Mark{
		// as heavy as the grant it waited for
		Event: ended(e, f), Time: f.Time, Kind: MarkAnswer, Lane: lane, To: service, Label: why, Bad: true,
		Weight: weightGrant,
		Say:    fmt.Sprintf("%s, which had asked for %s at %s, gets no grant: %s", name, lock, mk.story.moment(e.Time), long),
	})
}

// granted adds a request for a lock and the grant.
func (mk lockMarker) granted(e history.Event, f *history.Event, h *Bar, word string) {
	name, lock, took := mk.story.Lanes[h.Lane].Name, mk.scene.LockName(e.Lock), f.Time-e.Time
	to, at, by := mk.service(), []int(nil), ""
	have := mk.scene.Seen.Keepers(h.Ref)
	if who := mk.scene.Answered(h.Ref, have); len(who) > 0 {
		by = " by " + figure.List(brief(who))
		seen := have
		if len(seen) == 0 { // no server was asked
			seen = who
		}
		for _, n := range seen {
			if l := mk.story.Lanes.node(n); l >= 0 {
				at = append(at, l)
			}
		}
		if len(at) > 0 {
			to = mk.farthest(h.Lane, at)
		}
		if silent := slices.DeleteFunc(slices.Clone(have),
			func(n string) bool { return slices.Contains(who, n) }); len(silent) > 0 {
			by += " (" + figure.List(silent) + " " + map[bool]string{true: "has", false: "have"}[len(silent) == 1] +
				" the key, too, but no answer came)"
		}
	}
	label, say, weight := "granted", "", weightGrant
	if w := mk.scene.Worst; w != nil && slices.ContainsFunc(w.Holds,
		func(x results.HoldRef) bool { return scene.Same(x, h.Ref) }) {
		weight = weightTurn // without it the sentences about the two make no sense
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
		say += ", valid until " + mk.story.moment(v)
		if renewed := h.Ref.Valid; renewed > v {
			say += " and then renewed"
		}
		if took > atOnce && v > f.Time {
			say += " (" + figure.Duration(v-f.Time) + " left)"
		}
	}
	if took <= atOnce {
		mk.story.add(Mark{
			Event: ended(e, f), Time: f.Time, Kind: MarkExchange, Lane: h.Lane, To: to, At: at,
			Label: word + ": " + label, Weight: weight,
			Say: fmt.Sprintf("%s asks for %s and is granted it%s%s", name, lock, by, say),
		})
		h.Asked = f.Time
		return
	}
	mk.story.add(Mark{
		Time: e.Time, Kind: MarkAsk, Lane: h.Lane, To: to, Label: word, Weight: weightTrifle,
		Say: name + " asks for " + lock,
	})
	mk.story.add(Mark{
		Event: ended(e, f), Time: f.Time, Kind: MarkAnswer, Lane: h.Lane, To: to, At: at, Label: label, Weight: weight,
		Say: fmt.Sprintf("%s, which had asked at %s, is granted %s%s%s", name, mk.story.moment(e.Time), lock, by, say),
	})
}

// farthest returns the lane that is the farthest from another.
func (mk lockMarker) farthest(from int, lanes []int) int {
	return slices.MaxFunc(lanes, func(a, b int) int { return max(a-from, from-a) - max(b-from, from-b) })
}

// operation adds a release, a check, or a renewal that the user itself asked for. A later answer stands at its own
// time.
func (mk lockMarker) operation(i int, e history.Event, lane int) {
	f := mk.answer(i)
	why, long := mk.outcome(e, f)
	name, lock := mk.story.Lanes[lane].Name, mk.scene.LockName(e.Lock)
	m := Mark{
		Event: ended(e, f), Time: e.Time, Kind: MarkAsk, Lane: lane, To: mk.service(),
		Label: mk.scene.Which(e.Kind.String(), e.Lock), Bad: why != "",
		Say: fmt.Sprintf("%s %s %s", name, operations[e.Kind], lock), Weight: weightEnd,
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
	if whose := mk.victim(e); e.Kind == history.Release && whose.name != "" {
		m.Label, m.Bad, m.Weight = "foreign release: ends the grant of "+whose.name, true, weightHarm
		m.Say = fmt.Sprintf("%s, past its validity, releases %s and ends the grant of %s%s: FOREIGN RELEASE", name,
			lock, whose.name, whose.why)
	}
	mk.story.add(m)
	if late {
		bad := f.Phase != history.Ok
		if why == "" {
			why, long = "done", "it is done"
		}
		mk.story.add(Mark{
			Event: ended(e, f), Time: f.Time, Kind: MarkAnswer, Lane: lane, To: m.To, Label: why, Bad: bad,
			Weight: weightLoss,
			Say:    fmt.Sprintf("%s, which %s %s at %s, gets the answer: %s", name, asked[e.Kind], lock, mk.story.moment(e.Time), long),
		})
	}
}

// operations are the users' operations on a lock that they have, in words.
var operations = map[history.Kind]string{
	history.Release: "releases", history.Check: "checks whether it still has", history.Renew: "renews",
	history.Reenter: "takes once more", history.Leave: "gives back once",
}

// asked describes a request, for the row of its answer.
var asked = map[history.Kind]string{
	history.Release: "released", history.Check: "had checked whether it still has",
	history.Renew: "had asked to renew", history.Reenter: "had asked once more for", history.Leave: "gave back once",
}

// victim returns whose lock a release freed, according to the judge; the name is empty if there is none.
func (mk lockMarker) victim(release history.Event) (v victim) {
	for w := range scene.Witnesses(mk.scene.Report, results.DrawRelease) {
		if w.From == release.Time && len(w.Holds) > 0 && w.Holds[0].User != release.User {
			v.name = mk.scene.Name(w.Holds[0].User)
			theirs := mk.scene.GrantReason(w.Holds[0].User, w.Holds[0].Grant)
			own := mk.scene.GrantReason(release.User, release.Grant)
			if own.Code == history.CauseOwnerValue && theirs.Code == own.Code && theirs.Value == own.Value &&
				theirs.Token == own.Token {
				v.why = fmt.Sprintf(" (the value at the key is %d-%d for both)", own.Value, own.Token)
			}
			return v
		}
	}
	return v
}

// victim is whose lock a foreign release freed, and why, if the lock reported that.
type victim struct{ name, why string }
