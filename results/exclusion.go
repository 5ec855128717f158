// Exclusion: no two conflicting holds of one lock overlap.
//
// A sweep over the certain intervals, from acquire ok to release invoke, loss or death, in the order of time. Where the
// entitled parts of two holds overlap it is a double grant: the lock broke its promise. Where only the holds do, at
// least one of them had outlived its validity: an overlapping hold. A pair counts once, as one of the two. Equal times
// never overlap, and where clocks are not shared every interval is narrowed by their error.
//
// It cannot see overlaps that are only possible: a grant that its user had not yet in hand, or one whose release was
// under way. Those from acquire invoke to release outcome are counted as possible_overlaps, and prove nothing. Nor can
// it see a grant whose acquire timed out for the user, or that a validity was shorter than an adapter claims.

package results

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// maxPairs bounds the undecided pairs of one hold; beyond, a pair is decided by what is known at the end of the first.
const maxPairs = 1 << 16

// maxPending bounds the undecided pairs of all holds together, likewise.
const maxPending = 1 << 20

// maxLooks bounds how often two holds are held against each other, so that a history cannot keep the judge busy for ever. Beyond, the
// counts are lower bounds.
const maxLooks = 1 << 25

// maxBoth bounds the pairs of two holds that had both outlived their validity for which a standstill may be the reason; beyond, it is none.
const maxBoth = 1 << 16

// maxKept bounds the pairs that are kept for a witness, of each rank and of each of the two kinds.
const maxKept = 128

// pair is an overlap with a hold that has ended, kept by the one that goes on: a shorter validity, or a death that is
// dated back, can still change what it is.
type pair struct {
	from, to int64
	both     int64 // the first moment at which both were entitled; forever when there is none
	other    *hold // nil when it is not kept for a witness
	kept     *int  // the room that it takes up
	blame    int32 // what became of the hold that has ended: entitled, inexcusable, or its index in exclusion.stays
}

// The blame of a hold for an overlap that is no double grant, where it is not the index of its overstay.
const (
	entitled    int32 = -1 // it was entitled when the overlap began
	inexcusable int32 = -2 // it was not, and no standstill can be the reason
)

type exclusion struct {
	run         Run
	t           *tracker
	double      int64
	overlapping int64
	possible    possible
	rivals      rivals
	looks       int // at pairs, maxLooks at most
	bound       int
	pending     int       // pairs that are undecided
	kept        [2][2]int // pairs kept for a witness, by rank and by whether they are double grants: many of the one kind leave room for the other
	doubles     shortlist
	overlaps    shortlist

	stays    []overstay // of holds that had outlived their validity when an overlap began
	both     [][2]int32 // indexes of those that overlapped each other
	excusals *ledger
}

func newExclusion(run Run) Checker {
	x := &exclusion{
		run: run, rivals: newRivals(run), bound: maxLooks, doubles: shortlist{room: MaxWitnesses}, overlaps: shortlist{room: MaxWitnesses}, excusals: newLedger(run),
	}
	x.t = newTracker(run, x)
	x.t.reuse = true
	return x
}

// Observe takes the next event.
func (x *exclusion) Observe(e *history.Event) {
	x.possible.observe(e)
	x.rivals.observe(e)
	x.t.observe(e)
}

func (x *exclusion) began(h *hold) { x.rivals.began(h, x.t.locks[h.lock]) }

// takenBack decides the pairs that counted on what is now taken back.
func (x *exclusion) takenBack(h *hold, cut int64) {
	for i := range h.pairs {
		if h.pairs[i].both >= cut-h.err {
			h.pairs[i].both = forever
		}
	}
}

// ended decides what h had with holds that ended before, and notes it with those that go on.
func (x *exclusion) ended(h *hold) {
	x.rivals.ended(h)
	for _, p := range h.pairs {
		x.decide(h, p)
	}
	x.pending -= len(h.pairs)
	stay := entitled
	for _, k := range x.t.locks[h.lock] {
		if x.looks++; x.looks > x.bound {
			return
		}
		if k.user == h.user || !conflict(h.mode, k.mode) {
			continue
		}
		p := pair{from: max(h.start+h.err, k.start+k.err), to: later(h.end, -h.err)}
		if p.from >= p.to {
			continue
		}
		p.both = bothEntitled(h, k, p.from, p.to)
		p.blame = x.blame(h, p.from, &stay)
		kind := 0
		if p.both != forever {
			kind = 1
		}
		if room := &x.kept[x.rank(h, k)][kind]; *room < maxKept {
			*room++
			p.other, p.kept, h.pinned = h, room, true
		}
		if len(k.pairs) < maxPairs && x.pending < maxPending {
			k.pairs = append(k.pairs, p)
			x.pending++
		} else {
			x.decide(k, p)
		}
	}
}

// decide counts the overlap of k with a hold that ended before it.
func (x *exclusion) decide(k *hold, p pair) {
	p.to = min(p.to, later(k.end, -k.err))
	if p.from >= p.to {
		p.forgo()
		return
	}
	if p.both < p.to {
		x.double++
		x.keep(&x.doubles, "double_grant", k, p)
		return
	}
	x.overlapping++
	x.excuse(k, p)
	for rank := range x.kept {
		if p.kept == &x.kept[rank][1] {
			p.forgo() // it was kept as a double grant, and is none
		}
	}
	x.keep(&x.overlaps, "overlapping_hold", k, p)
}

// blame tells what h has to do with an overlap that begins at from. known is its overstay, where that was noted before.
func (x *exclusion) blame(h *hold, from int64, known *int32) int32 {
	if h.entitled(from, from) {
		return entitled
	}
	if *known == entitled {
		*known = inexcusable
		if o, ok := overstayed(h, h.end); ok {
			*known = int32(len(x.stays))
			x.stays = append(x.stays, o)
		}
	}
	return *known
}

// excuse notes who is to blame for the overlap of k with a hold that ended before it. What stood still is known at the end.
func (x *exclusion) excuse(k *hold, p pair) {
	stay := entitled
	a, b := p.blame, x.blame(k, p.from, &stay)
	switch {
	case a >= 0 && b == entitled:
		x.stays[a].n++
	case b >= 0 && a == entitled:
		x.stays[b].n++
	case a >= 0 && b >= 0 && len(x.both) < maxBoth:
		x.both = append(x.both, [2]int32{a, b})
	default:
		x.excusals.add(x.run, k.lock, 1, excuse{}, false)
	}
}

// settle finds which overlaps are there only because a holder's process stood still.
func (x *exclusion) settle() {
	for _, o := range x.stays {
		if o.n > 0 {
			why, ok := x.run.still.excused(o)
			x.excusals.add(x.run, o.lock, o.n, why, ok)
		}
	}
	for _, p := range x.both {
		why, a := x.run.still.excused(x.stays[p[0]])
		_, b := x.run.still.excused(x.stays[p[1]])
		x.excusals.add(x.run, x.stays[p[0]].lock, 1, why, a && b)
	}
}

// forgo gives back the room of a pair that turned out to be nothing, or less than it looked.
func (p pair) forgo() {
	if p.kept != nil {
		*p.kept--
	}
}

func (x *exclusion) keep(s *shortlist, kind string, k *hold, p pair) {
	if p.other == nil {
		return
	}
	a, b := p.other, k
	if b.start < a.start || b.start == a.start && b.user < a.user {
		a, b = b, a
	}
	s.add(proof{
		kind: kind, from: p.from, to: p.to, holds: []*hold{a, b}, rank: x.rank(a, b),
		text: func() string { return x.text(kind, a, b, p) },
	})
}

// rank prefers holds that a fault was aimed at: the picture then shows why.
func (x *exclusion) rank(a, b *hold) int {
	if x.run.struck(a) || x.run.struck(b) {
		return 1
	}
	return 0
}

func (x *exclusion) text(kind string, a, b *hold, p pair) string {
	inside := fmt.Sprintf("%v held %s from %s to %s, %v from %s to %s", a.user, lockName(x.run, a.lock), x.run.ms(a.start), x.run.ms(a.end),
		b.user, x.run.ms(b.start), x.run.ms(b.end))
	if kind == "double_grant" {
		return fmt.Sprintf("%s; both were entitled at %s", inside, x.run.ms(p.both))
	}
	return fmt.Sprintf("%s; %s", inside, x.outlived(a, b, p.from))
}

// outlived says whose validity had run out.
func (x *exclusion) outlived(a, b *hold, from int64) string {
	for _, h := range []*hold{a, b} {
		if !h.entitled(from, from) {
			if h.valid == history.ValidUnknown {
				return fmt.Sprintf("nothing is known of the validity of %v", h.user)
			}
			return fmt.Sprintf("the validity of %v had ended at %s", h.user, x.run.ms(h.valid)) + x.run.still.because(x.run, h, h.end)
		}
	}
	return "at no time were both entitled"
}

// bothEntitled returns the first moment within [from, to) at which both validities stand, or forever.
func bothEntitled(a, b *hold, from, to int64) int64 {
	for _, s := range a.spans {
		for _, r := range b.spans {
			start := max(from, s.from+a.err, r.from+b.err)
			if start < min(to, later(s.until, -a.err), later(r.until, -b.err)) {
				return start
			}
		}
	}
	return forever
}

// Finish returns the finding.
func (x *exclusion) Finish() Finding {
	x.t.finish()
	x.settle()
	f := Finding{Checker: "exclusion", Verdict: verdictOf(x.double + x.overlapping), ledger: x.excusals}
	if x.looks > x.bound {
		f.Warnings = append(f.Warnings, "so many holds overlap that not all were held against each other: the counts are lower bounds")
		if x.double == 0 {
			f.Verdict = Unknown
		}
	}
	x.excusals.into(&f, "overlapping_holds")
	f.Chances = map[string]Chances{
		"double_grants":     {x.rivals.entitled, "entitled grants of a lock that another user asked for or held meanwhile"},
		"overlapping_holds": {x.rivals.contested, "grants of a lock that another user asked for or held meanwhile"},
	}
	f.Counts = map[string]*int64{
		"double_grants": count(x.double), "overlapping_holds": count(x.overlapping),
		"possible_overlaps": count(max(0, x.possible.pairs()-x.double-x.overlapping)),
	}
	doubles, overlaps := x.doubles.witnesses(x.run), x.overlaps.witnesses(x.run)
	if len(doubles) > 0 && len(overlaps) > 0 {
		doubles = doubles[:min(len(doubles), max(MaxWitnesses/2, MaxWitnesses-len(overlaps)))]
	}
	f.Witnesses = slices.Concat(doubles, overlaps[:min(len(overlaps), MaxWitnesses-len(doubles))])
	return f
}
