// Exclusion: no two conflicting holds of one lock overlap.
//
// It sweeps over the certain intervals, from acquire ok to release invoke, loss or death, in the order of time. An
// overlap of the entitled parts of two holds is a double grant: the lock broke its promise. If only the holds
// overlap, at least one of them had outlived its validity: an overlapping hold. A pair counts once, as one of the
// two. Equal times never overlap, and with several clocks every interval is narrowed by their error. A pair whose
// order lies within the errors is neither an overlap nor apart: it counts as unsure_pairs, and among the
// possible_overlaps.
//
// Example: A is granted the lock at 0 s, valid until 2 s, and releases it at 3 s, because it was paused.
//   - B is granted it at 1 s: both are entitled from 1 s to 2 s, a double grant.
//   - B is granted it at 2.5 s: A had outlived its validity, so from 2.5 s to 3 s it is an overlapping hold.
//   - B is granted it at 3 s: nothing.
//
// It cannot see overlaps that are only possible: a grant that its user did not have in hand yet, or one with a
// release in progress. Those from acquire invoke to release outcome are counted as possible_overlaps, and prove
// nothing. Nor can it see a grant whose acquire timed out for the user, or a validity that is shorter than an adapter
// claims.

package checkers

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
)

// maxPairs bounds the undecided pairs of one hold. Beyond it, a pair is decided when the first of its holds ends, by
// what is known then.
const maxPairs = 1 << 16

// maxPending bounds the undecided pairs of all holds together, likewise.
const maxPending = 1 << 20

// maxLooks bounds how often two holds are compared. Beyond it the counts are lower bounds.
const maxLooks = 1 << 25

// maxBoth bounds the pairs in which both holds had outlived their validity and a standstill may be the reason. Beyond
// it standstills are ignored.
const maxBoth = 1 << 16

// maxKept bounds the pairs kept for a witness, for each rank and each of the two counts.
const maxKept = 128

// pair is an overlap of an ended hold with an open one, which stores it. A shorter validity, or a death that is dated
// back, can still change its kind.
type pair struct {
	from, to int64
	both     int64 // the first moment at which both were entitled; forever when there is none
	other    *hold // the ended hold, if it is kept for a witness, or there are several clocks
	kept     *int  // the space that it takes; nil if it is not kept for a witness
	blame    int32 // of the ended hold: blameless, inexcusable, or its index in exclusion.stays
	late     *bool // of the ended hold: whether it was counted among those that outlived their validity
}

// The blame of a hold for an overlap that is no double grant, unless it is the index of its overstay.
const (
	blameless   int32 = -1 // it was entitled when the overlap began
	inexcusable int32 = -2 // it was not, and no standstill can be the reason
)

type exclusion struct {
	run         results.Run
	t           *tracker
	clocks      results.Clocks
	pairs       map[*hold][]pair // of an open hold: its overlaps with holds that ended before
	outlived    map[*hold]*bool  // of an open hold that had outlived its validity in an overlap: whether it was counted
	double      int64
	overlapping int64
	lateHolds   int64 // that had outlived their validity in such a pair
	possible    possible
	unsure      int64          // pairs whose order lies within the clock errors
	follows     int64          // grants after a conflicting hold of another user, with several clocks
	ends        []*clockedEnds // by lock: of holds, with several clocks
	rivals      rivals
	looks       evidence.Looks // comparisons of pairs
	pending     int            // undecided pairs
	// pairs kept for a witness, by rank and by whether they are double grants: many of one kind leave space for the
	// other
	kept     [2][2]int
	doubles  evidence.Shortlist
	overlaps evidence.Shortlist

	stays    []evidence.Stay // of holds that had outlived their validity when an overlap began
	both     [][2]int32      // indexes of those that overlapped each other
	excusals *results.Ledger

	failovers failovers
}

var exclusionKind = results.CheckerKind{
	Name: "exclusion", New: newExclusion, Follows: holdsOnce, Grants: true,
	Doc: "No two conflicting holds of one lock overlap, neither while both are entitled (double grant) nor after a validity ran out (overlapping hold).",
	Counts: []results.Quantity{
		{
			Name: "double_grants", Doc: "pairs of conflicting holds whose *entitled* parts overlap: the lock broke its promise",
			Tone: results.Violation, Of: "entitled grants of a lock that another user asked for or held meanwhile",
			First: 1, Column: "double grants", NeedsEnds: true,
			Explains: []string{"stale_writes", "lost_updates"},
		},
		{
			Name: "overlapping_holds", Doc: "pairs of conflicting holds that overlap after the validity of at least one had ended: the service kept its promise",
			Tone: results.Doubtful, Of: "grants of a lock that another user asked for or held meanwhile", First: 2,
			Column: "overlapping holds", NeedsEnds: true,
		},
		{Name: "outlived_holds", Doc: "holds that had outlived their validity in such a pair: the late holders, however many others came in meanwhile"},
		{
			Name: "possible_overlaps", Doc: "pairs that may have overlapped: one was granted but not yet in hand, or its release was under way; they prove nothing",
			Timeless: true,
		},
		{
			Name: "unsure_pairs", Doc: "pairs among them whose order lies within the [errors of their clocks](#clocks-of-several-machines); not judged where there is only one clock",
			Of: "grants that followed a conflicting hold of another user", Timeless: true,
		},
	},
	Measures: failoverMeasures,
	Witnesses: []results.WitnessKind{
		{Name: "double_grant", Draw: results.DrawEntitled, Place: 1, Title: func(w results.Witness, who string) string {
			if len(w.Holds) > 2 {
				return "Double grant: " + who + " hold " + w.Lock + ", all entitled"
			}
			return "Double grant: " + who + " hold " + w.Lock + ", both entitled"
		}},
		{
			Name: "overlapping_hold", Draw: results.DrawOverlap, Place: 5,
			Title: func(_ results.Witness, who string) string {
				return "Overlapping hold: " + who + " are inside, one past its validity"
			},
		},
	},
}

func newExclusion(run results.Run) results.Checker {
	if run.Permits > 1 {
		return newPermits(run)
	}
	x := &exclusion{
		run: run, clocks: run.Clocks(), pairs: map[*hold][]pair{}, outlived: map[*hold]*bool{}, rivals: newRivals(run),
		looks: evidence.Looks{Most: maxLooks}, excusals: results.NewLedger(), failovers: newFailovers(run),
	}
	x.possible.clocks = x.clocks
	return x
}

func (x *exclusion) follow(t *tracker) watch {
	x.t = t
	return watch{began: x.began, takenBack: x.takenBack, ended: x.ended, last: x.last, left: x.ended}
}

// Observe takes the next event.
func (x *exclusion) Observe(e *history.Event) {
	x.possible.observe(e)
	x.rivals.observe(e)
	if x.failovers.passed < len(x.failovers.killed) {
		x.failovers.pass(e.Time, x.t.locks)
	}
}

func (x *exclusion) last(t *tracker) { x.failovers.pass(results.Forever, t.locks) }

func (x *exclusion) began(h *hold) {
	x.rivals.began(h, x.t.locks[h.lock])
	if len(x.clocks) > 0 {
		x.unsure += conflicting(endsOf(&x.ends, h.lock).after(h.user, h.earliest(h.start)), h.mode)
		if endsOf(&x.ends, h.lock).follows(h.user, h.mode) {
			x.follows++
		}
	}
}

// takenBack corrects the pairs that relied on a revoked validity.
func (x *exclusion) takenBack(c curtailed) {
	pairs := x.pairs[c.hold]
	for i := range pairs {
		if pairs[i].both >= c.cut {
			pairs[i].both = results.Forever
		}
	}
}

// ended decides the overlaps of h with holds that ended before it. Open holds keep their overlaps with h.
func (x *exclusion) ended(h *hold) {
	x.rivals.ended(h)
	if len(x.clocks) > 0 && h.end != results.Forever {
		endsOf(&x.ends, h.lock).add(x.clocks, clockedEnd{h.latest(h.end), h.user, min(h.mode, 1)}, h.end)
	}
	defer x.forget(h)
	for _, p := range x.pairs[h] {
		x.decide(h, p)
	}
	x.pending -= len(x.pairs[h])
	stay := blameless
	for _, k := range x.t.locks[h.lock] {
		if !x.looks.Take(1) {
			return
		}
		if k.user == h.user || !conflict(h.mode, k.mode) {
			continue
		}
		p := pair{from: max(h.latest(h.start), k.latest(k.start)), to: h.earliest(h.end)}
		if p.from >= p.to {
			if h.end > k.start || h.user.Client() != k.user.Client() && h.latest(h.end) > k.earliest(k.start) {
				x.unsure++
			}
			continue
		}
		p.both = bothEntitled(h, k, p.from, p.to)
		if len(x.clocks) > 0 {
			p.other, h.pinned = h, true
		}
		if p.blame = x.blame(h, p.from, &stay); p.blame != blameless {
			p.late = x.lateness(h)
		}
		kind := 0
		if p.both != results.Forever {
			kind = 1
		}
		if room := &x.kept[x.rank(h, k)][kind]; *room < maxKept {
			*room++
			p.other, p.kept, h.pinned = h, room, true
		}
		if len(x.pairs[k]) < maxPairs && x.pending < maxPending {
			x.pairs[k] = append(x.pairs[k], p)
			x.pending++
		} else {
			x.decide(k, p)
		}
	}
}

// decide counts the overlap of k with a hold that ended before it. With several clocks, later news of k also concern
// the time before that end. Example: k's clock has an error of 3 ms and its validity ends at 111 ms, so it is
// certainly entitled until 108 ms. The other hold begins at 108 ms and ends at 109 ms. A renewal that k learns at 111
// ms, by its clock, leaves no gap: it was entitled all the while.
func (x *exclusion) decide(k *hold, p pair) {
	p.to = min(p.to, k.earliest(k.end))
	if p.from >= p.to {
		if p.from < k.latest(k.end) {
			x.unsure++
		}
		p.drop()
		return
	}
	if len(x.clocks) > 0 {
		p.both = bothEntitled(p.other, k, p.from, p.to)
	}
	if p.both < p.to {
		x.double++
		x.failovers.doubled(p.from)
		x.keep(&x.doubles, "double_grant", k, p)
		return
	}
	x.overlapping++
	x.excuse(k, p)
	x.late(k, p)
	for rank := range x.kept {
		if p.kept == &x.kept[rank][1] {
			p.drop() // it was kept as a double grant, and is none
		}
	}
	x.keep(&x.overlaps, "overlapping_hold", k, p)
}

// blame returns blameless if h was entitled when an overlap began at from. Otherwise it returns the index of its
// overstay, or inexcusable. known is the answer of an earlier call for h, or blameless.
func (x *exclusion) blame(h *hold, from int64, known *int32) int32 {
	if h.entitled(from, from) {
		return blameless
	}
	if *known == blameless {
		*known = inexcusable
		if o := overstayed(h, h.end); o.Late > 0 {
			*known = int32(len(x.stays))
			x.stays = append(x.stays, o)
		}
	}
	return *known
}

// excuse records which overstays explain the overlap of k with a hold that ended before it. Which of them a
// standstill excuses is known only at the end.
func (x *exclusion) excuse(k *hold, p pair) {
	stay := blameless
	a, b := p.blame, x.blame(k, p.from, &stay)
	switch {
	case a >= 0 && b == blameless:
		x.stays[a].N++
	case b >= 0 && a == blameless:
		x.stays[b].N++
	case a >= 0 && b >= 0 && len(x.both) < maxBoth:
		x.both = append(x.both, [2]int32{a, b})
	default:
		x.excusals.Add(x.run, k.lock, 1, results.Standstill{}, false)
	}
}

// late counts the holds of an overlap that had outlived their validity when it began, each once.
func (x *exclusion) late(k *hold, p pair) {
	holders := []*bool{p.late}
	if !k.entitled(p.from, p.from) {
		holders = append(holders, x.lateness(k))
	}
	for _, counted := range holders {
		if counted != nil && !*counted {
			*counted = true
			x.lateHolds++
		}
	}
}

// lateness returns the flag that the hold was counted among those that outlived their validity.
func (x *exclusion) lateness(h *hold) *bool {
	if x.outlived[h] == nil {
		x.outlived[h] = new(bool)
	}
	return x.outlived[h]
}

// forget drops the state of an open hold.
func (x *exclusion) forget(h *hold) {
	delete(x.pairs, h)
	delete(x.outlived, h)
}

// excuseOverlaps finds the overlaps that exist only because a holder's process stood still.
func (x *exclusion) excuseOverlaps() {
	for _, o := range x.stays {
		if o.N > 0 {
			why, ok := evidence.Excused(x.run, o, evidence.Involved)
			x.excusals.Add(x.run, o.Lock, o.N, why, ok)
		}
	}
	for _, p := range x.both {
		why, a := evidence.Excused(x.run, x.stays[p[0]], evidence.Involved)
		_, b := evidence.Excused(x.run, x.stays[p[1]], evidence.Involved)
		x.excusals.Add(x.run, x.stays[p[0]].Lock, 1, why, a && b)
	}
}

// drop frees the space of a pair that is no overlap after all, or not the double grant it was kept as.
func (p pair) drop() {
	if p.kept != nil {
		*p.kept--
	}
}

func (x *exclusion) keep(s *evidence.Shortlist, kind string, k *hold, p pair) {
	if p.kept == nil {
		return
	}
	a, b := p.other, k
	if b.start < a.start || b.start == a.start && b.user < a.user {
		a, b = b, a
	}
	s.Add(evidence.Proof{
		Kind: kind, From: p.from, To: p.to, Holds: []evidence.Hold{a, b}, Rank: x.rank(a, b),
		Text: func() string { return x.text(kind, a, b, p) },
	})
}

// rank prefers holds that a fault was aimed at: the picture then shows the reason.
func (x *exclusion) rank(a, b *hold) int {
	if aimedAt(x.run, a) || aimedAt(x.run, b) {
		return 1
	}
	return 0
}

func (x *exclusion) text(kind string, a, b *hold, p pair) string {
	inside := fmt.Sprintf("%v held %s from %s to %s, %v from %s to %s", a.user, x.run.LockName(a.lock),
		x.run.MS(a.start), x.run.MS(a.end),
		b.user, x.run.MS(b.start), x.run.MS(b.end))
	if kind == "double_grant" {
		return fmt.Sprintf("%s; both were entitled at %s", inside, x.run.MS(p.both))
	}
	return fmt.Sprintf("%s; %s", inside, x.runOut(a, b, p.from))
}

// runOut says whose validity had run out.
func (x *exclusion) runOut(a, b *hold, from int64) string {
	for _, h := range []*hold{a, b} {
		if !h.entitled(from, from) {
			if h.valid == history.ValidUnknown {
				return fmt.Sprintf("the validity of %v is unknown", h.user)
			}
			return fmt.Sprintf("the validity of %v had ended at %s", h.user, x.run.MS(h.valid)) +
				standingStill(x.run, h, h.end)
		}
	}
	return "at no time were both entitled"
}

// bothEntitled returns the first moment within [from, to) at which both holds are entitled, or forever.
func bothEntitled(a, b *hold, from, to int64) int64 {
	for _, s := range a.spans {
		for _, r := range b.spans {
			start := max(from, a.latest(s.from), b.latest(r.from))
			if start < min(to, a.earliest(s.until), b.earliest(r.until)) {
				return start
			}
		}
	}
	return results.Forever
}

// Finish returns the finding.
func (x *exclusion) Finish() results.Finding {
	x.excuseOverlaps()
	f := results.Finding{Verdict: results.VerdictOf(x.double + x.overlapping), Ledger: x.excusals}
	x.looks.Bound(&f, x.double, "too many holds overlap to compare all pairs: the counts are lower bounds")
	x.excusals.Into(&f, "overlapping_holds")
	f.Chances = map[string]results.Chances{
		"double_grants":     {N: x.rivals.entitled},
		"overlapping_holds": {N: x.rivals.contested},
	}
	f.Counts = map[string]*int64{
		"double_grants": new(x.double), "overlapping_holds": new(x.overlapping), "outlived_holds": new(x.lateHolds),
		"possible_overlaps": new(max(0, x.possible.pairs()-x.double-x.overlapping)),
	}
	if len(x.clocks) > 0 {
		f.Counts["unsure_pairs"], f.Chances["unsure_pairs"] = new(x.unsure), results.Chances{N: x.follows}
	}
	x.failovers.into(&f)
	doubles, overlaps := x.doubles.Witnesses(x.run), x.overlaps.Witnesses(x.run)
	if len(doubles) > 0 && len(overlaps) > 0 {
		doubles = doubles[:min(len(doubles), max(results.MaxWitnesses/2, results.MaxWitnesses-len(overlaps)))]
	}
	f.Witnesses = slices.Concat(doubles, overlaps[:min(len(overlaps), results.MaxWitnesses-len(doubles))])
	return f
}
