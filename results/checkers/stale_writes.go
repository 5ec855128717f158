// Stale writes: the resource applies no effect of a hold after a later, conflicting hold has read or written there.
//
// The witness is the resource's own log of effects in the order of arrival. The users' events only determine which
// hold was later:
//   - by time: one was in hand before the other's request was sent, or was over when the other came into hand,
//     entitled
//   - by token only if time leaves two holds unordered, and only if the service itself gives the token. An
//     order that lies within the clock errors is unordered, and no token decides it.
//
// A late write that was applied is a stale write. A write without a known order is an unordered effect. A late write
// does no harm if its condition was checked in the step that applied it, and is a late effect: the resource reports
// that for each (history.CodeConditional).
//
// A refused access is a fence save if the refusal is right:
//   - a later, conflicting hold had read or written there
//   - the hold was over, or its validity had run out
//   - its condition was false (history.CodeConditional), because another hold had written since its own last access
//
// A refusal that certainly hit the rightful holder is a false one. Whether a hold was over is known when it has
// ended, because deaths and ended sessions are reported late. So such a refusal waits for that. What clock errors, or
// the time in which a user died, leave open counts as neither.
//
// It cannot see harm that never reached the resource, reads that returned the value of a stale write, or effects of a
// resource that keeps no log.

package checkers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/figure"
)

type staleWrites struct {
	run       results.Run
	t         *tracker
	refused   map[*hold][]effect // accesses that only the end of an open hold can justify
	locks     []touched
	stale     int64
	harmless  int64
	saves     int64
	unordered int64
	refusals  int64
	effects   int64
	overtaken int64              // accesses that arrived after a later holder
	justified int64              // other right refusals
	unknown   int64              // effects of unknown holds
	latest    int64              // maximum time of a write after the validity of its hold
	late      [2][]evidence.Stay // of the holds of stale writes, and of such refused accesses, by their arrival
	writes    evidence.Shortlist
	saved     evidence.Shortlist
	wronged   evidence.Shortlist
}

var staleWritesKind = results.CheckerKind{
	Name: "stale_writes", New: newStaleWrites, Follows: holdsOnce, Resource: true, Grants: true,
	Doc: "The resource applies no write of a hold after a later, conflicting hold has read or written. A refused write is a fence save.",
	Counts: []results.Quantity{
		{
			Name: "stale_writes", Doc: "effects applied after a later, conflicting holder had read or written: the harm itself",
			Tone: results.Violation, Of: "accesses that arrived after a later holder", First: 3, Column: "stale writes",
			Explains: []string{"lost_updates"}, Outlived: true,
		},
		{
			Name: "late_effects",
			Doc:  "such effects without harm: the operation checked a condition, as a conditional update, a version check, `DECR` or `If-Match` does",
			Of:   "accesses that arrived after a later holder",
		},
		{
			Name: "fence_saves",
			Doc:  "accesses that the resource refused rightly: a later holder had accessed it, the hold or its validity had ended, or another holder had written since the read",
			Tone: results.Saved, Of: "accesses that came too late", First: 4, Column: "fence saves",
		},
		{
			Name: "unordered_effects", Doc: "writes applied after another holder's access where the order of the two holds is unknown; they prove nothing",
			Of: "effects", Timeless: true,
		},
		{
			Name: "false_refusals", Doc: "accesses that the resource refused although their user was the rightful holder: entitled, and without a later one",
			Tone: results.Doubtful, Of: "effects", NeedsAll: true,
		},
	},
	Measures: []results.Quantity{{
		Name: "late_write_ms_max",
		Doc:  "the longest time from the end of a holder's validity to an applied write of that holder: the window that a check before the write leaves open",
	}},
	Witnesses: []results.WitnessKind{
		{Name: "stale_write", Draw: results.DrawOvertaken, Place: 2, Title: func(results.Witness, string) string {
			return "Stale write: an expired holder writes after its successor"
		}},
		{Name: "false_refusal", Draw: results.DrawRefused, Place: 3, Title: func(results.Witness, string) string {
			return "False refusal: the resource refuses the rightful holder"
		}},
		{Name: "fence_save", Draw: results.DrawSaved, Place: 4, Title: func(w results.Witness, _ string) string {
			if slices.ContainsFunc(w.Events, func(e history.Event) bool {
				return e.Phase == history.Fail &&
					e.Code == history.CodeConditional
			}) {
				return "Fence save: the resource refuses a write based on an old value"
			}
			return "Fence save: the resource refuses an expired holder"
		}},
	},
}

func newStaleWrites(run results.Run) results.Checker {
	half := evidence.Shortlist{Room: results.MaxWitnesses / 2}
	return &staleWrites{
		run: run, locks: make([]touched, len(run.Locks)), refused: map[*hold][]effect{}, saved: half, wronged: half,
	}
}

func (s *staleWrites) follow(t *tracker) watch {
	s.t = t
	if s.run.Resource == "" {
		return watch{}
	}
	return watch{effect: s.effect, ended: s.ended}
}

// Observe ignores the events: effects arrive with their holds.
func (s *staleWrites) Observe(*history.Event) {}

// inOrder reports whether the resource certainly served a before b. A single process has its own order. The joint
// effects of replicas have the order of their clocks.
func (s *staleWrites) inOrder(a, b *effect) bool {
	return len(s.run.Replicas) == 0 || a.from == a.until && b.from == b.until || a.until < b.from
}

// ended judges the refusals that waited for it. The service may report more about a lost client.
func (s *staleWrites) ended(h *hold) {
	if h.over.Kind == history.KindNone {
		return
	}
	for i := range s.refused[h] {
		s.justify(&s.refused[h][i])
	}
	delete(s.refused, h)
}

// open judges the refusals of holds without an ending event, in the order of time.
func (s *staleWrites) open() {
	list := slices.Concat(slices.Collect(maps.Values(s.refused))...)
	slices.SortStableFunc(list, func(a, b effect) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.User, b.User), cmp.Compare(a.Seq, b.Seq))
	})
	for i := range list {
		s.justify(&list[i])
	}
}

// effect judges the next effect.
func (s *staleWrites) effect(x *effect) {
	s.effects++
	for int(x.Lock) >= len(s.locks) {
		s.locks = append(s.locks, touched{})
	}
	l, served := &s.locks[x.Lock], x.Phase == history.Ok
	wrote := served && x.Kind == history.EffectWrite
	switch {
	case x.hold == nil:
		s.unknown++
	case wrote:
		s.write(l, x)
	case served:
		if later, _ := s.later(l, x); later != nil {
			s.overtaken++
		}
	case x.Code == history.CodeFenced || x.Code == history.CodeConditional:
		s.refuse(l, x)
	}
	if wrote { // any write makes the others' reads outdated
		l.writes, l.written = l.writes+1, *x
	}
	if served && x.hold != nil {
		l.add(*x)
		x.hold.saw = l.writes
	}
}

func (s *staleWrites) write(l *touched, x *effect) {
	later, unordered := s.later(l, x)
	stay := overstayed(x.hold.hold, x.Time)
	s.latest = max(s.latest, stay.Late)
	switch {
	case later != nil && !s.inOrder(later, x):
		s.unordered++
	case later != nil && x.Code == history.CodeConditional:
		s.harmless++
		s.overtaken++
	case later != nil:
		s.stale++
		s.overtaken++
		s.late[0] = append(s.late[0], stay)
		s.keep(&s.writes, "stale_write", "was applied", x, later)
	case unordered && x.Code != history.CodeConditional:
		s.unordered++
	}
}

func (s *staleWrites) refuse(l *touched, x *effect) {
	h := x.hold
	later, _ := s.later(l, x)
	switch {
	case later == nil && x.Code == history.CodeConditional && l.writes > h.saw:
		s.justified++
		s.saves++
		if l.written.hold != nil {
			s.keep(&s.saved, "fence_save", "was refused", x, &l.written)
		}
	case later == nil && h.over.Kind == history.KindNone:
		s.refused[h.hold] = append(s.refused[h.hold], *x)
	case later == nil:
		s.justify(x)
	case s.inOrder(later, x):
		s.saves++
		s.overtaken++
		s.late[1] = append(s.late[1], overstayed(h.hold, x.Time))
		s.keep(&s.saved, "fence_save", "was refused", x, later)
	}
}

// justify judges a refusal by the fate of the hold. If no event reported its validity, only its end justifies one. A
// refusal counts neither way within the clock errors, between a user's last sign of life and its observed death, or
// after the last certain moment of a session.
func (s *staleWrites) justify(x *effect) {
	h := x.hold
	over := h.latest(h.overAt()) < x.from || h.told && h.ended == 0 && !h.maybeEntitled(x.from, x.until)
	switch {
	case over:
		s.justified++
		s.saves++
		s.late[1] = append(s.late[1], overstayed(h.hold, x.Time))
		s.keep(&s.saved, "fence_save", "was refused", x, nil)
	case x.until < h.earliest(h.end) && (!h.told || h.entitled(x.from, x.until)):
		s.refusals++
		s.keep(&s.wronged, "false_refusal", "was refused", x, nil)
	}
}

// later finds an effect of a later, conflicting hold. Without one, unordered reports whether there is an effect of a
// hold that neither time nor token can order. Time goes first: the token is what a broken lock gets wrong.
func (s *staleWrites) later(l *touched, x *effect) (found *effect, unordered bool) {
	h := x.hold
	for mode := range l.modes {
		if conflict(h.mode, uint8(mode)) && found == nil {
			found = l.modes[mode].after(h)
		}
	}
	for mode := range l.modes {
		if found != nil || !conflict(h.mode, uint8(mode)) {
			continue
		}
		others := l.modes[mode].beside(h, s.t.worst, func(t *effect) {
			switch {
			case s.run.Token != TokenService || h.token == 0 || t.hold.token == 0 || t.hold.token == h.token:
				unordered = true
			case t.hold.token < h.token:
			case maybeBefore(t.hold.hold, h.hold, x.from):
				unordered = true
			default:
				found = t // the one that was granted first, because they come latest first
			}
		})
		unordered = unordered || others
	}
	return found, unordered && found == nil
}

// keep keeps the proof for x. t came before it; or, if t is nil, the state of x's hold decided.
func (s *staleWrites) keep(list *evidence.Shortlist, kind, what string, x, t *effect) {
	h, event := x.hold.hold, x.Event
	rank := 0
	if aimedAt(s.run, h) {
		rank = 1
	}
	if !list.Wants(rank) {
		return
	}
	says := func(why string) string {
		return fmt.Sprintf("the %s of %v, granted %s at %s, %s at %s, %s",
			strings.TrimPrefix(event.Kind.String(), "effect-"), h.user,
			s.run.LockName(h.lock), s.run.MS(h.start), what, s.run.MS(event.Time), why) +
			standingStill(s.run, h, event.Time)
	}
	p := evidence.Proof{
		Kind: kind, From: event.Time, To: event.Time, Holds: []evidence.Hold{h}, Rank: rank,
		Events: []history.Event{event},
	}
	p.Text = func() string {
		if kind == "false_refusal" {
			return says("though nothing had taken the lock from it")
		}
		return says("after its hold was over")
	}
	if t != nil {
		other := *t
		p.From, p.Holds, p.Events = other.Time, append(p.Holds, other.hold.hold), []history.Event{other.Event, event}
		p.Text = func() string {
			return says(fmt.Sprintf("after %v, granted the lock at %s, had accessed the resource at %s", other.hold.user,
				s.run.MS(other.hold.start), s.run.MS(other.Time)))
		}
	}
	list.Add(p)
}

// Finish returns the finding.
func (s *staleWrites) Finish() results.Finding {
	s.open()
	f := results.Finding{Verdict: results.VerdictOf(s.stale), Measures: map[string]*float64{"late_write_ms_max": nil}}
	if s.run.Resource == "" {
		return f.NotApplicable("there is no resource")
	}
	if s.effects == 0 {
		return f.NotApplicable("no read or write of a holder reached the resource")
	}
	f.Counts = map[string]*int64{
		"stale_writes": new(s.stale), "late_effects": new(s.harmless), "fence_saves": new(s.saves),
		"unordered_effects": new(s.unordered), "false_refusals": new(s.refusals),
	}
	f.Chances = map[string]results.Chances{
		"stale_writes": {N: s.overtaken}, "late_effects": {N: s.overtaken},
		"fence_saves": {N: s.overtaken + s.justified}, "unordered_effects": {N: s.effects},
		"false_refusals": {N: s.effects},
	}
	f.Measures["late_write_ms_max"] = new(results.Milli(s.latest))
	f.Ledger = evidence.Excuses(s.run, s.late[0], evidence.Involved)
	f.Ledger.Into(&f, "stale_writes")
	evidence.Excuses(s.run, s.late[1], evidence.Involved).Into(&f, "fence_saves")
	if s.refusals > 0 {
		f.Warnings = append(f.Warnings, "the resource refused "+figure.Of(s.refusals, "access")+" of rightful holders")
	}
	if s.unordered > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s could be ordered neither by time nor by a token of the service",
			figure.Of(s.unordered, "write")))
	}
	if s.unknown > 0 {
		f.Warnings = append(f.Warnings, figure.Of(s.unknown, "effect")+
			" of holds that are not in the history, or ended long ago")
		if s.stale == 0 {
			f.Verdict = results.Unknown
		}
	}
	f.Witnesses = s.writes.Witnesses(s.run)
	f.Witnesses = slices.Concat(f.Witnesses, s.wronged.Witnesses(s.run), s.saved.Witnesses(s.run))
	f.Witnesses = f.Witnesses[:min(len(f.Witnesses), results.MaxWitnesses)]
	return f
}
