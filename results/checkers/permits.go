// Permits: a lock of N permits has at most N holders at once.
//
// Such holders do not exclude each other in pairs, so moments are judged. If a hold begins while N other users
// certainly have the lock in hand, N+1 are inside. If it and at least N of them are entitled at that moment, it is a
// double grant, and else an overlapping hold. The entitled part of a hold may begin later, after a renewal that came
// after the end of its validity: N other entitled users then make a double grant, too. Each begin counts once,
// however many were inside. Equal times never overlap, and with inexact clocks every interval is narrowed.
//
// Example: a lock has 2 permits. A and B are granted it at 0 s, valid until 2 s.
//   - C is granted it at 1 s: three are entitled, one double grant. So is D at 1.5 s: one more.
//   - C is granted it at 2.5 s, and A and B, which were paused, still have it in hand: one overlapping hold.
//
// With one permit that is the property of exclusion.go, which counts pairs.

package checkers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
)

// permits judges a run whose locks have several permits. It replaces exclusion.
type permits struct {
	run         results.Run
	n           int // permits of each lock
	t           *tracker
	locks       []permitLock
	asks        *asks
	contested   int64
	entitled    int64 // grants among them that were entitled when they began
	double      int64
	overlapping int64
	crowds      []crowd
	rest        int64 // overlaps that are not among them
	looks       evidence.Looks
	doubles     evidence.Shortlist
	overlaps    evidence.Shortlist
}

// permitLock is the state of one lock.
type permitLock struct {
	over  []*hold // ended holds that an open hold, or a later one, may overlap
	alone []*hold // open holds that always had a spare permit beside them
	prune int     // the length of over at which holds without possible overlaps are dropped
}

// crowd is an overlap that is no double grant: the hold that began last, and the others that had outlived their
// validity then. What a standstill excuses is known only at the end.
type crowd struct {
	lock     uint16
	last     *evidence.Stay // nil: it was entitled
	late     []evidence.Stay
	punctual int // others that were entitled, or that nothing can excuse
}

func newPermits(run results.Run) results.Checker {
	return &permits{
		run: run, n: run.Permits, locks: make([]permitLock, len(run.Locks)), asks: newAsks(run, unwatched{}, false),
		looks: evidence.Looks{Most: maxLooks},
	}
}

func (p *permits) follow(t *tracker) watch {
	p.t = t
	return watch{began: p.began, ended: p.ended, left: p.ended}
}

func (p *permits) lock(i uint16) *permitLock {
	for int(i) >= len(p.locks) {
		p.locks = append(p.locks, permitLock{})
	}
	return &p.locks[i]
}

// Observe takes the next event.
func (p *permits) Observe(e *history.Event) {
	p.asks.observe(e)
	if e.Kind == history.Acquire && e.Phase == history.Invoke {
		p.contest(e.Lock)
	}
}

// contest records that more users hold a lock or ask for it than it has permits: then each of its grants could be one
// too many.
func (p *permits) contest(lock uint16) {
	inside := 0
	if int(lock) < len(p.t.locks) {
		inside = len(p.t.locks[lock])
	}
	if p.asks.against(lock, 0)+inside > p.n {
		p.lock(lock).alone = nil
	}
}

func (p *permits) began(h *hold) {
	l := p.lock(h.lock)
	l.alone = append(l.alone, h)
	p.contest(h.lock)
}

func (p *permits) ended(h *hold) {
	l := p.lock(h.lock)
	if i := slices.Index(l.alone, h); i >= 0 {
		l.alone = slices.Delete(l.alone, i, i+1)
	} else {
		p.contested++
		if h.fresh {
			p.entitled++
		}
	}
	h.pinned = true
	l.over = append(l.over, h)
	if len(l.over) < max(l.prune, fewEnds) {
		return
	}
	first := results.Forever // holds that begin from now on begin later
	for _, k := range p.t.locks[h.lock] {
		first = min(first, k.latest(k.start))
	}
	if first == results.Forever {
		first = h.overAt()
	}
	p.sweep(l, first)
	l.prune = 2 * len(l.over)
}

// part is a time for which a user certainly held a lock, or was also entitled to it.
type part struct {
	from, to int64
	hold     *hold
}

// sweep judges what began before a moment, when all holds from before it are over, and drops the holds that were over
// by then.
func (p *permits) sweep(l *permitLock, until int64) {
	var inside, entitled []part
	for _, h := range l.over {
		held := part{h.latest(h.start), h.earliest(h.end), h}
		inside = append(inside, held)
		for _, s := range h.spans {
			entitled = append(entitled, part{max(held.from, h.latest(s.from)), min(held.to, h.earliest(s.until)), h})
		}
	}
	type begin struct {
		hold *hold
		at   int64
	}
	doubles := map[begin]bool{}
	p.crowded(entitled, until, func(x part, others []part) {
		doubles[begin{x.hold, x.from}] = true
		p.double++
		p.keep(&p.doubles, "double_grant", x, others)
	})
	p.crowded(inside, until, func(x part, others []part) {
		if doubles[begin{x.hold, x.from}] {
			return
		}
		p.overlapping++
		if len(p.crowds) < maxBoth {
			p.crowds = append(p.crowds, p.crowdOf(x, others))
		} else {
			p.rest++
		}
		p.keep(&p.overlaps, "overlapping_hold", x, others)
	})
	l.over = slices.DeleteFunc(l.over, func(h *hold) bool {
		h.swept = until
		return h.latest(h.start) < until && h.end <= until
	})
}

// crowded finds the starts of parts, since the earlier sweep and before a moment, at which other users used all
// permits.
func (p *permits) crowded(parts []part, until int64, found func(x part, others []part)) {
	parts = slices.DeleteFunc(parts, func(x part) bool { return x.from >= x.to })
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.hold.user, b.hold.user),
			cmp.Compare(a.hold.grant, b.hold.grant))
	})
	var open []part
	for _, x := range parts {
		if x.from >= until || !p.looks.Take(len(open)) {
			return
		}
		open = slices.DeleteFunc(open, func(o part) bool { return o.to <= x.from || o.hold.user == x.hold.user })
		if len(open) >= p.n && x.from >= x.hold.swept {
			found(x, open)
		}
		open = append(open, x)
	}
}

// crowdOf keeps the parts of an overlap that may excuse it.
func (p *permits) crowdOf(x part, others []part) crowd {
	c := crowd{lock: x.hold.lock}
	if !x.hold.entitled(x.from, x.from) {
		c.last = new(overstayed(x.hold, x.hold.end))
	}
	for _, o := range others {
		stay := overstayed(o.hold, o.hold.end)
		if stay.Late > 0 && !o.hold.entitled(x.from, x.from) && len(c.late) < maxInside {
			c.late = append(c.late, stay)
		} else {
			c.punctual++
		}
	}
	return c
}

// excuse finds the overlaps that exist only because processes stood still: without that a permit would have been
// free.
func (p *permits) excuse() *results.Ledger {
	l := results.NewLedger()
	l.Add(p.run, 0, p.rest, results.Standstill{}, false)
	for _, c := range p.crowds {
		var why results.Standstill
		inside, ok := c.punctual, false
		for _, o := range c.late {
			if still, left := evidence.Excused(p.run, o, evidence.Involved); left {
				why = still
			} else {
				inside++
			}
		}
		if ok = inside < p.n; c.last != nil && !ok {
			why, ok = evidence.Excused(p.run, *c.last, evidence.Involved)
		}
		l.Add(p.run, c.lock, 1, why, ok)
	}
	return l
}

func (p *permits) keep(s *evidence.Shortlist, kind string, x part, others []part) {
	rank, end := 0, x.to
	holds := []*hold{x.hold}
	for _, o := range others {
		holds, end = append(holds, o.hold), min(end, o.to)
	}
	if slices.ContainsFunc(holds, func(h *hold) bool { return aimedAt(p.run, h) }) {
		rank = 1
	}
	if !s.Wants(rank) {
		return
	}
	holds = holds[:min(len(holds), p.n+1)]
	slices.SortFunc(holds, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.user, b.user))
	})
	proof := evidence.Proof{Kind: kind, From: x.from, To: end, Rank: rank}
	for _, h := range holds {
		proof.Holds = append(proof.Holds, h)
	}
	proof.Text = func() string {
		var who []string
		for _, h := range holds {
			who = append(who, fmt.Sprintf("%v from %s to %s", h.user, p.run.MS(h.start), p.run.MS(h.end)))
		}
		text := fmt.Sprintf("%s has %d permits, and %d users held it at %s: %s", p.run.LockName(x.hold.lock), p.n,
			len(others)+1, p.run.MS(x.from), strings.Join(who, ", "))
		if kind == "double_grant" {
			return text + "; all were entitled then"
		}
		return text + "; not all were entitled then"
	}
	s.Add(proof)
}

// Finish returns the finding. It counts no pairs: neither outlived_holds nor possible_overlaps.
func (p *permits) Finish() results.Finding {
	for i := range p.locks {
		p.sweep(&p.locks[i], results.Forever)
	}
	f := results.Finding{Verdict: results.VerdictOf(p.double + p.overlapping), Ledger: p.excuse()}
	p.looks.Bound(&f, p.double, "too many holds overlap to compare all pairs: the counts are lower bounds")
	f.Ledger.Into(&f, "overlapping_holds")
	f.Chances = map[string]results.Chances{
		"double_grants": {N: p.entitled}, "overlapping_holds": {N: p.contested},
	}
	f.Counts = map[string]*int64{"double_grants": new(p.double), "overlapping_holds": new(p.overlapping)}
	doubles, overlaps := p.doubles.Witnesses(p.run), p.overlaps.Witnesses(p.run)
	f.Witnesses = slices.Concat(doubles, overlaps)
	f.Witnesses = f.Witnesses[:min(len(f.Witnesses), results.MaxWitnesses)]
	return f
}
