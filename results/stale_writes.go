// Stale writes: the resource applies no effect of a hold after a later, conflicting hold has read or written there.
//
// The witness is the resource's own log of effects in the order of arrival; the users' word is taken only for which
// hold came later: by time, where one's acquire ok lies before the other's request was sent, or its hold was over when the other
// came into hand, entitled; by token only where time leaves them unordered, and only one that the service gives. An applied write of
// that kind is a stale write, a refused access of that kind a fence save. A write that neither order can place is counted as an
// unordered effect.
//
// It cannot see harm that never reached the resource, reads that returned what a stale write left there, or effects of
// a resource that keeps no log. A refused access of a hold that is not known to be stale is a false refusal.

package results

import (
	"fmt"
	"strings"

	"github.com/lockquake/lockquake/history"
)

// keptHolds is how many of a user's latest holds are remembered for effects that arrive late.
const keptHolds = 16

type staleWrites struct {
	run       Run
	t         *tracker
	past      byUser[[]*hold] // the latest holds of a user, the open ones included
	locks     []touched
	stale     int64
	saves     int64
	unordered int64
	refusals  int64
	effects   int64
	overtaken int64         // accesses that arrived after a later holder
	unknown   int64         // effects of holds that are not known
	late      [2][]overstay // of the holds of stale writes, and of refused accesses of that kind, by when they arrived
	writes    shortlist
	saved     shortlist
}

func newStaleWrites(run Run) Checker {
	s := &staleWrites{
		run: run, locks: make([]touched, len(run.Locks)), writes: shortlist{room: MaxWitnesses}, saved: shortlist{room: MaxWitnesses / 2},
	}
	s.t = newTracker(run, s)
	return s
}

func (s *staleWrites) began(h *hold) {
	past := s.past.at(h.user)
	if len(*past) == keptHolds {
		*past = without(*past, (*past)[0])
	}
	*past = append(*past, h)
}

func (s *staleWrites) takenBack(*hold, int64) {}
func (s *staleWrites) ended(*hold)            {}

// Observe takes the next event.
func (s *staleWrites) Observe(e *history.Event) {
	if e.Kind != history.EffectRead && e.Kind != history.EffectWrite {
		s.t.observe(e)
		return
	}
	if e.Grant == 0 || e.Phase == history.Info { // the latter is no effect
		return
	}
	s.effects++
	h := s.find(e)
	if h == nil {
		s.unknown++
		return
	}
	for int(e.Lock) >= len(s.locks) {
		s.locks = append(s.locks, touched{})
	}
	l := &s.locks[e.Lock]
	switch {
	case e.Phase == history.Ok && e.Kind == history.EffectWrite:
		s.write(l, h, e)
		l.add(touch{h, *e})
	case e.Phase == history.Ok:
		if later, _ := s.later(l, h); later != nil {
			s.overtaken++
		}
		l.add(touch{h, *e})
	case e.Phase == history.Fail && e.Code == history.CodeFenced:
		s.refuse(l, h, e)
	default:
	}
}

func (s *staleWrites) find(e *history.Event) *hold {
	for _, h := range *s.past.at(e.User) {
		if h.grant == e.Grant {
			return h
		}
	}
	return nil
}

func (s *staleWrites) write(l *touched, h *hold, e *history.Event) {
	later, unordered := s.later(l, h)
	switch {
	case later != nil:
		s.stale++
		s.overstay(0, h, e)
		s.keep(&s.writes, "stale_write", "was applied", h, later, e)
	case unordered:
		s.unordered++
	}
}

func (s *staleWrites) refuse(l *touched, h *hold, e *history.Event) {
	if later, _ := s.later(l, h); later != nil {
		s.saves++
		s.overstay(1, h, e)
		s.keep(&s.saved, "fence_save", "was refused", h, later, e)
		return
	}
	s.refusals++
}

// overstay notes by how much the effect of an overtaken hold came too late; one with which no standstill has to do is late without end.
func (s *staleWrites) overstay(kind int, h *hold, e *history.Event) {
	s.overtaken++
	o, ok := overstayed(h, e.Time)
	if !ok {
		o = overstay{user: h.user, lock: h.lock, late: forever}
	}
	s.late[kind] = append(s.late[kind], o)
}

// excusals finds which of them came too late only because the holder's process stood still.
func (s *staleWrites) excusals(kind int) *ledger {
	l := newLedger(s.run)
	for _, o := range s.late[kind] {
		why, ok := s.run.still.excused(o)
		l.add(s.run, o.lock, 1, why, ok)
	}
	return l
}

// later finds an effect of a later, conflicting hold. Where there is none, unordered tells whether there is one of a
// hold that neither time nor token can place. Time goes first: the token is what a broken lock gets wrong.
func (s *staleWrites) later(l *touched, h *hold) (found *touch, unordered bool) {
	for mode := range l.modes {
		if conflict(h.mode, uint8(mode)) && found == nil {
			found = l.modes[mode].after(h)
		}
	}
	for mode := range l.modes {
		if found != nil || !conflict(h.mode, uint8(mode)) {
			continue
		}
		others := l.modes[mode].beside(h, s.t.worst, func(t *touch) {
			switch {
			case s.run.Token != TokenService || h.token == 0 || t.hold.token == 0 || t.hold.token == h.token:
				unordered = true
			case t.hold.token > h.token && found == nil:
				found = t
			}
		})
		unordered = unordered || others
	}
	return found, unordered && found == nil
}

func (s *staleWrites) keep(list *shortlist, kind, what string, h *hold, t *touch, e *history.Event) {
	rank := 0
	if s.run.struck(h) {
		rank = 1
	}
	if !list.wants(rank) {
		return
	}
	event, other := *e, *t
	list.add(proof{
		kind: kind, from: other.event.Time, to: event.Time, holds: []*hold{h, other.hold}, rank: rank,
		events: []history.Event{other.event, event},
		text: func() string {
			return fmt.Sprintf("the %s of %v, granted %s at %s, %s at %s, after %v, granted it at %s, had touched the resource at %s",
				strings.TrimPrefix(event.Kind.String(), "effect-"), h.user, lockName(s.run, h.lock), s.run.ms(h.start), what, s.run.ms(event.Time),
				other.hold.user, s.run.ms(other.hold.start), s.run.ms(other.event.Time)) + s.run.still.because(s.run, h, event.Time)
		},
	})
}

// Finish returns the finding.
func (s *staleWrites) Finish() Finding {
	s.t.finish()
	f := Finding{Checker: "stale_writes", Verdict: verdictOf(s.stale)}
	names := []string{"stale_writes", "fence_saves", "unordered_effects", "false_refusals"}
	if s.run.Resource == "" {
		return skipped(f, "nothing is protected: there is no resource", names)
	}
	if s.effects == 0 {
		return skipped(f, "no read or write of a holder reached the resource", names)
	}
	f.Counts = map[string]*int64{
		"stale_writes": count(s.stale), "fence_saves": count(s.saves),
		"unordered_effects": count(s.unordered), "false_refusals": count(s.refusals),
	}
	f.Chances = map[string]Chances{}
	for _, name := range []string{"stale_writes", "fence_saves"} {
		f.Chances[name] = Chances{s.overtaken, "accesses that arrived after a later holder"}
	}
	for _, name := range []string{"unordered_effects", "false_refusals"} {
		f.Chances[name] = Chances{s.effects, "effects"}
	}
	f.ledger = s.excusals(0)
	f.ledger.into(&f, "stale_writes")
	s.excusals(1).into(&f, "fence_saves")
	if s.refusals > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("the resource refused %d accesses of holds that no later one had overtaken", s.refusals))
	}
	if s.unordered > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%d writes could be placed neither by time nor by a token of the service", s.unordered))
	}
	if s.unknown > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%d effects belong to holds that the history does not know, or that are long over", s.unknown))
		if s.stale == 0 {
			f.Verdict = Unknown
		}
	}
	f.Witnesses = s.writes.witnesses(s.run)
	f.Witnesses = append(f.Witnesses, s.saved.witnesses(s.run)...)
	f.Witnesses = f.Witnesses[:min(len(f.Witnesses), MaxWitnesses)]
	return f
}

// skipped makes f the finding of a property that does not apply.
func skipped(f Finding, why string, counts []string) Finding {
	f.Verdict, f.Skipped, f.Counts = Unknown, why, map[string]*int64{}
	for _, name := range counts {
		f.Counts[name] = nil
	}
	return f
}
