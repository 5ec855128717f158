// Stale writes: the resource applies no effect of a hold after a later, conflicting hold has read or written there.
//
// The witness is the resource's own log of effects in the order of arrival. From the users' events comes only which
// hold was later:
//   - by time: one was in hand before the other's request was sent, or was over when the other came into hand,
//     entitled
//   - by token only where time leaves two holds unordered, and only where the service itself gives the token. An
//     order that lies within the errors of clocks is unordered, and no token decides it.
//
// A late write that was applied is a stale write. A write whose order nothing tells is an unordered effect. A late
// write whose condition was checked in the step that applied it does no harm, and is a late effect: the resource says
// so of each (history.CodeConditional).
//
// A refused access is a fence save where the refusal is right:
//   - a later, conflicting hold had read or written there
//   - the hold was over, or its validity had run out
//   - its condition was false (history.CodeConditional), for another hold had written since its own last access
//
// A refusal that certainly hit the rightful holder is a false one. Whether a hold was over is known when it has ended,
// because deaths and ended sessions are told late. So such a refusal waits for that. What errors of clocks, or the time
// in which a user died, leave open is counted as neither.
//
// It cannot see harm that never reached the resource, reads that returned what a stale write left there, or effects
// of a resource that keeps no log.

package checkers

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
	"github.com/lockquake/lockquake/results/figure"
)

// keptHolds is how many of a user's latest holds are remembered for effects that arrive late.
const keptHolds = 16

// maxWaiting bounds the effects that wait for the hold of the first of them. Beyond it that one is judged by what is
// known then.
const maxWaiting = 1 << 16

type staleWrites struct {
	run       results.Run
	t         *tracker
	clocks    results.Clocks
	resource  []*history.Header        // the processes of the resource whose clock is not the run's
	past      users.Table[[]*accessor] // the latest holds of a user, the open ones included
	waiting   []waitingEffect          // in the order of arrival, where clocks err; the first waits for its hold
	refused   map[*hold][]refusal      // accesses that nothing but the end of an open hold can justify
	locks     []touched
	stale     int64
	harmless  int64
	saves     int64
	unordered int64
	refusals  int64
	effects   int64
	overtaken int64         // accesses that arrived after a later holder
	justified int64         // other refusals that are right
	unknown   int64         // effects of holds that are not known
	latest    int64         // by how much a write came after the validity of its hold, at most
	late      [2][]overstay // of the holds of stale writes, and of refused accesses of that kind, by when they arrived
	writes    shortlist
	saved     shortlist
	wronged   shortlist
}

var staleWritesKind = results.CheckerKind{
	Name: "stale_writes", New: newStaleWrites, Follows: holdsOnce, Resource: true, Grants: true,
	Doc: "The resource applies no write of a hold after a later, conflicting hold has read or written there; a refused one is a fence save.",
	Counts: []results.Quantity{
		{
			Name: "stale_writes", Doc: "effects that were applied after a later, conflicting holder had already read or written there: the harm itself",
			Tone: results.Violation, Of: "accesses that arrived after a later holder", First: 3, Column: "stale writes",
			Explains: []string{"lost_updates"}, Outlived: true,
		},
		{
			Name: "late_effects",
			Doc:  "such effects that did no harm, because the step that applied them checked their condition: a conditional update, a compare of a version, `DECR`, `If-Match`",
			Of:   "accesses that arrived after a later holder",
		},
		{
			Name: "fence_saves",
			Doc:  "accesses that the resource refused rightly: a later holder had been there, the hold or its validity was over, or another holder had written since what was read",
			Tone: results.Saved, Of: "accesses that came too late", First: 4, Column: "fence saves",
		},
		{
			Name: "unordered_effects", Doc: "writes that were applied after another holder's access, where nothing tells which hold is the later one; they prove nothing",
			Of: "effects", Timeless: true,
		},
		{
			Name: "false_refusals", Doc: "accesses that the resource refused though their user was the rightful holder: entitled, and no later one had been there",
			Tone: results.Doubtful, Of: "effects", NeedsAll: true,
		},
	},
	Measures: []results.Quantity{{
		Name: "late_write_ms_max",
		Doc:  "the longest time from the end of a holder's validity to a write of its own that the resource applied: how wide the window is that a look before the write leaves",
	}},
	Witnesses: []results.WitnessKind{
		{Name: "stale_write", Draw: results.DrawOvertaken, Place: 2, Title: func(results.Witness, string) string {
			return "Stale write: a holder whose time was over writes after its successor"
		}},
		{Name: "false_refusal", Draw: results.DrawRefused, Place: 3, Title: func(results.Witness, string) string {
			return "False refusal: the resource refuses the rightful holder"
		}},
		{Name: "fence_save", Draw: results.DrawSaved, Place: 4, Title: func(w results.Witness, _ string) string {
			if slices.ContainsFunc(w.Events, func(e history.Event) bool {
				return e.Phase == history.Fail &&
					e.Code == history.CodeConditional
			}) {
				return "Fence save: the resource refuses a write that was made from an old value"
			}
			return "Fence save: the resource refuses a holder whose time was over"
		}},
	},
}

func newStaleWrites(run results.Run) results.Checker {
	s := &staleWrites{
		run: run, locks: make([]touched, len(run.Locks)), clocks: run.Clocks(), refused: map[*hold][]refusal{},
		writes: shortlist{room: results.MaxWitnesses}, saved: shortlist{room: results.MaxWitnesses / 2},
		wronged: shortlist{room: results.MaxWitnesses / 2},
	}
	for i := range run.Processes {
		p := &run.Processes[i]
		if _, client := history.ClientOf(p.Process); !client && !p.Exact() {
			s.resource = append(s.resource, p)
		}
	}
	return s
}

func (s *staleWrites) follow(t *tracker) watch {
	s.t = t
	if s.run.Resource == "" {
		return watch{}
	}
	return watch{began: s.began, ended: s.ended, after: s.after}
}

// wrong is by how much the resource's time of an event may be wrong.
func (s *staleWrites) wrong(e *history.Event) (wrong int64) {
	for _, p := range s.resource {
		wrong = max(wrong, p.Error(e.Time))
	}
	return wrong
}

// inOrder tells whether the resource certainly served one event before another that came later. A single process has an
// order of its own. What a majority of replicas did has that of their clocks.
func (s *staleWrites) inOrder(a, b *history.Event) bool {
	wrong := s.wrong(a) + s.wrong(b)
	return len(s.run.Replicas) == 0 || wrong == 0 || a.Time+wrong < b.Time
}

func (s *staleWrites) began(h *hold) {
	past := s.past.At(h.user)
	if len(*past) == keptHolds {
		*past = without(*past, (*past)[0])
	}
	*past, h.pinned = append(*past, &accessor{hold: h}), true
}

// ended judges the refusals that waited for it. Of a client that is lost the service may tell more.
func (s *staleWrites) ended(h *hold) {
	if h.over.Kind == history.KindNone {
		return
	}
	for _, r := range s.refused[h] {
		s.justify(r.hold.hold, &r.event)
	}
	delete(s.refused, h)
}

// after takes the end of a session whose client is lost: the tracker has closed its holds by then, and passes over it.
func (s *staleWrites) after(e *history.Event) {
	if e.Kind != history.Ended {
		return
	}
	if a := s.find(e); a != nil && a.end != results.Forever && a.over.Kind == history.KindNone {
		h := *a.hold // the others see it as it was
		h.spans, h.ended = slices.Clone(h.spans), e.Time
		h.renewValidity(e.Time, e.Valid)
		a.hold = &h
	}
}

// open judges the refusals of holds that no event ended, in the order of time.
func (s *staleWrites) open() {
	var list []refusal
	for _, refused := range s.refused {
		list = append(list, refused...)
	}
	slices.SortStableFunc(list, func(a, b refusal) int {
		return cmp.Or(cmp.Compare(a.event.Time, b.event.Time), cmp.Compare(a.event.User, b.event.User),
			cmp.Compare(a.event.Seq, b.event.Seq))
	})
	for i := range list {
		s.justify(list[i].hold.hold, &list[i].event)
	}
}

// refusal is an access that the resource refused.
type refusal struct {
	hold  *accessor
	event history.Event
}

// Observe takes the next event.
func (s *staleWrites) Observe(e *history.Event) {
	effect := e.Kind == history.EffectRead || e.Kind == history.EffectWrite
	s.serve(e.Time)
	switch {
	case !effect:
	case e.Phase == history.Info: // it is no effect
	case len(s.resource) > 0 || len(s.clocks) > 0:
		s.waiting = append(s.waiting, waitingEffect{*e, e.Time + s.wrong(e)})
	default:
		s.effect(e)
	}
}

// waitingEffect is an effect, and when it happened at the latest.
type waitingEffect struct {
	history.Event
	latest int64
}

// serve judges the effects that waited until now, in the order of arrival. An effect waits for its hold, and those
// behind it wait with it: where clocks err, a hold's first effects may be stamped before its acquire ok. Example: the
// resource, whose clock is right, serves A's read at 10 ms. A's clock is 3 ms fast, so that its acquire ok of 9 ms is
// stamped 12 ms. It errs by 5 ms at most: when an event of 16 ms comes, no grant of A's can belong to that read any
// more. A known hold is complete when an event comes that is stamped after its begin: its session may be told to have
// ended at that moment.
func (s *staleWrites) serve(now int64) {
	for len(s.waiting) > 0 {
		e := &s.waiting[0]
		h := s.find(&e.Event)
		known := h != nil && h.start < now
		if !known && s.clocks.Early(e.User, now) <= e.latest && len(s.waiting) <= maxWaiting {
			return
		}
		s.waiting = s.waiting[1:]
		s.effect(&e.Event)
	}
}

// effect judges one. What certainly came before the grant of its hold is no effect of that.
func (s *staleWrites) effect(e *history.Event) {
	s.effects++
	for int(e.Lock) >= len(s.locks) {
		s.locks = append(s.locks, touched{})
	}
	l, h := &s.locks[e.Lock], s.find(e)
	known, wrote := h != nil && h.earliest(h.start) <= e.Time+s.wrong(e), e.Phase == history.Ok &&
		e.Kind == history.EffectWrite
	switch {
	case !known:
		s.unknown++
		if wrote { // whoever wrote it: what others had read is out of date
			l.writes, l.written = l.writes+1, touch{}
		}
	case wrote:
		s.write(l, h, e)
		l.add(touch{h, *e})
		l.writes, l.written = l.writes+1, touch{h, *e}
		h.saw = l.writes
	case e.Phase == history.Ok:
		if later, _ := s.later(l, h, e); later != nil {
			s.overtaken++
		}
		l.add(touch{h, *e})
		h.saw = l.writes
	case e.Code == history.CodeFenced || e.Code == history.CodeConditional:
		s.refuse(l, h, e)
	default:
	}
}

func (s *staleWrites) find(e *history.Event) *accessor {
	for _, h := range *s.past.At(e.User) {
		if h.grant == e.Grant {
			return h
		}
	}
	return nil
}

func (s *staleWrites) write(l *touched, h *accessor, e *history.Event) {
	later, unordered := s.later(l, h, e)
	stay := overstayed(h.hold, e.Time)
	s.latest = max(s.latest, stay.late)
	switch {
	case later != nil && !s.inOrder(&later.event, e):
		s.unordered++
	case later != nil && e.Code == history.CodeConditional:
		s.harmless++
		s.overtaken++
	case later != nil:
		s.stale++
		s.overtaken++
		s.late[0] = append(s.late[0], stay)
		s.keep(&s.writes, "stale_write", "was applied", h.hold, later, e)
	case unordered && e.Code != history.CodeConditional:
		s.unordered++
	}
}

func (s *staleWrites) refuse(l *touched, h *accessor, e *history.Event) {
	later, _ := s.later(l, h, e)
	switch {
	case later == nil && e.Code == history.CodeConditional && l.writes > h.saw:
		s.justified++
		s.saves++
		if l.written.hold != nil {
			s.keep(&s.saved, "fence_save", "was refused", h.hold, &l.written, e)
		}
	case later == nil && h.over.Kind == history.KindNone:
		s.refused[h.hold] = append(s.refused[h.hold], refusal{h, *e})
	case later == nil:
		s.justify(h.hold, e)
	case s.inOrder(&later.event, e):
		s.saves++
		s.overtaken++
		s.late[1] = append(s.late[1], overstayed(h.hold, e.Time))
		s.keep(&s.saved, "fence_save", "was refused", h.hold, later, e)
	}
}

// justify judges a refusal by what became of the hold. Where no event told its validity, only its end justifies one.
// Neither right nor wrong is what lies within the errors of clocks, between the last sign of life of a user and its
// death as it was seen, or after the moment at which a session was last certain to stand.
func (s *staleWrites) justify(h *hold, e *history.Event) {
	from, until := e.Time-s.wrong(e), e.Time+s.wrong(e)
	over := h.latest(h.overAt()) < from || h.told && h.ended == 0 && !h.maybeEntitled(from, until)
	switch {
	case over:
		s.justified++
		s.saves++
		s.late[1] = append(s.late[1], overstayed(h, e.Time))
		s.keep(&s.saved, "fence_save", "was refused", h, nil, e)
	case until < h.earliest(h.end) && (!h.told || h.entitled(from, until)):
		s.refusals++
		s.keep(&s.wronged, "false_refusal", "was refused", h, nil, e)
	}
}

// excusals finds which of these effects came too late only because a process stood still.
func (s *staleWrites) excusals(kind int) *results.Ledger {
	l := results.NewLedger()
	for _, o := range s.late[kind] {
		why, ok := excused(s.run, o)
		l.Add(s.run, o.lock, 1, why, ok)
	}
	return l
}

// later finds an effect of a later, conflicting hold. Where there is none, unordered tells whether there is an
// effect of a hold that neither time nor token can order. Time goes first: the token is what a broken lock gets
// wrong.
func (s *staleWrites) later(l *touched, h *accessor, e *history.Event) (found *touch, unordered bool) {
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
			case t.hold.token < h.token:
			case maybeBefore(t.hold.hold, h.hold, e.Time-s.wrong(e)):
				unordered = true
			default:
				found = t // of several the one that was granted first, for they come from the latest on
			}
		})
		unordered = unordered || others
	}
	return found, unordered && found == nil
}

// keep keeps the proof of what the access e of h came to: t had come before it; or, where t is nil, h was over, or was
// not.
func (s *staleWrites) keep(list *shortlist, kind, what string, h *hold, t *touch, e *history.Event) {
	rank := 0
	if aimedAt(s.run, h) {
		rank = 1
	}
	if !list.wants(rank) {
		return
	}
	event := *e
	says := func(why string) string {
		return fmt.Sprintf("the %s of %v, granted %s at %s, %s at %s, %s",
			strings.TrimPrefix(event.Kind.String(), "effect-"), h.user,
			s.run.LockName(h.lock), s.run.MS(h.start), what, s.run.MS(event.Time), why) +
			standingStill(s.run, h, event.Time)
	}
	p := proof{
		kind: kind, from: event.Time, to: event.Time, holds: []*hold{h}, rank: rank,
		events: []history.Event{event},
	}
	p.text = func() string {
		if kind == "false_refusal" {
			return says("though nothing had taken the lock from it")
		}
		return says("after its hold was over")
	}
	if t != nil {
		other := *t
		p.from, p.holds, p.events = other.event.Time, []*hold{h, other.hold.hold}, []history.Event{other.event, event}
		p.text = func() string {
			return says(fmt.Sprintf("after %v, granted it at %s, had touched the resource at %s", other.hold.user,
				s.run.MS(other.hold.start), s.run.MS(other.event.Time)))
		}
	}
	list.add(p)
}

// Finish returns the finding.
func (s *staleWrites) Finish() results.Finding {
	s.serve(math.MaxInt64)
	s.open()
	f := results.Finding{Verdict: results.VerdictOf(s.stale), Measures: map[string]*float64{"late_write_ms_max": nil}}
	if s.run.Resource == "" {
		return f.NotApplicable("nothing is protected: there is no resource")
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
	f.Ledger = s.excusals(0)
	f.Ledger.Into(&f, "stale_writes")
	s.excusals(1).Into(&f, "fence_saves")
	if s.refusals > 0 {
		f.Warnings = append(f.Warnings, "the resource refused "+figure.Of(s.refusals, "access")+" of rightful holders")
	}
	if s.unordered > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s could be placed neither by time nor by a token of the service",
			figure.Of(s.unordered, "write")))
	}
	if s.unknown > 0 {
		f.Warnings = append(f.Warnings, figure.Of(s.unknown, "effect")+
			" of holds that the history does not know, or that are long over")
		if s.stale == 0 {
			f.Verdict = results.Unknown
		}
	}
	f.Witnesses = s.writes.witnesses(s.run)
	f.Witnesses = slices.Concat(f.Witnesses, s.wronged.witnesses(s.run), s.saved.witnesses(s.run))
	f.Witnesses = f.Witnesses[:min(len(f.Witnesses), results.MaxWitnesses)]
	return f
}
