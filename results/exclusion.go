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

// maxKept bounds the pairs that are kept for a witness, of each rank and of each of the two kinds.
const maxKept = 128

// pair is an overlap with a hold that has ended, kept by the one that goes on: a shorter validity, or a death that is
// dated back, can still change what it is.
type pair struct {
	from, to int64
	both     int64 // the first moment at which both were entitled; forever when there is none
	other    *hold // nil when it is not kept for a witness
	kept     *int  // the room that it takes up
}

type exclusion struct {
	run         Run
	t           *tracker
	double      int64
	overlapping int64
	possible    possible
	kept        [2][2]int // pairs kept for a witness, by rank and by whether they are double grants: many of the one kind leave room for the other
	doubles     shortlist
	overlaps    shortlist
}

func newExclusion(run Run) Checker {
	x := &exclusion{run: run, doubles: shortlist{room: MaxWitnesses}, overlaps: shortlist{room: MaxWitnesses}}
	x.t = newTracker(run, x)
	x.t.reuse = true
	return x
}

// Observe takes the next event.
func (x *exclusion) Observe(e *history.Event) {
	x.possible.observe(e)
	x.t.observe(e)
}

func (x *exclusion) began(*hold) {}

// takenBack decides the pairs that counted on what is now taken back.
func (x *exclusion) takenBack(h *hold, cut int64) {
	for i := range h.pairs {
		if h.pairs[i].both >= cut {
			h.pairs[i].both = forever
		}
	}
}

// ended decides what h had with holds that ended before, and notes it with those that go on.
func (x *exclusion) ended(h *hold) {
	for _, p := range h.pairs {
		x.decide(h, p)
	}
	for _, k := range x.t.locks[h.lock] {
		if k.user == h.user || !conflict(h.mode, k.mode) {
			continue
		}
		p := pair{from: max(h.start+h.err, k.start+k.err), to: later(h.end, -h.err)}
		if p.from >= p.to {
			continue
		}
		p.both = bothEntitled(h, k, p.from, p.to)
		kind := 0
		if p.both != forever {
			kind = 1
		}
		if room := &x.kept[x.rank(h, k)][kind]; *room < maxKept {
			*room++
			p.other, p.kept, h.pinned = h, room, true
		}
		if len(k.pairs) < maxPairs {
			k.pairs = append(k.pairs, p)
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
	for rank := range x.kept {
		if p.kept == &x.kept[rank][1] {
			p.forgo() // it was kept as a double grant, and is none
		}
	}
	x.keep(&x.overlaps, "overlapping_hold", k, p)
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
			return fmt.Sprintf("the validity of %v had ended at %s", h.user, x.run.ms(h.valid))
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
	f := Finding{Checker: "exclusion", Verdict: verdictOf(x.double + x.overlapping)}
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
