// Token regressions: a later grant of a lock has a higher fencing token.
//
// Later is decided by time only, never by the tokens, which are what is judged. One grant was in a user's hand before
// the other's request was sent, or its hold was over when the other came into hand, entitled. Two holders that share
// a lock may have the same token: it then belongs to the time for which the lock is held, not to the grant.
//
// The second order relies on exclusion, so it does not apply to shared holds: a grant whose answer was delayed may be
// older than another that came into hand, and was over, before it. A lock that does not exclude may also have granted
// two in the other order than they came into hand. So a regression next to double grants may be a consequence of
// them.
//
// It cannot see a regression between grants that were in hand at once, or one against a grant that came into hand
// after its validity. Nor can it see tokens that grew but that the resource cannot compare.

package checkers

import (
	"fmt"
	"slices"
	"sort"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/figure"
)

// The values of Run.Token.
const (
	TokenNone     = "none"      // the lock's grants carry no token
	TokenService  = "service"   // the service gives it
	TokenHomeMade = "home-made" // something beside the service makes it
)

// maxRungs bounds the ladder of a lock. A request that waited for more grants than that is not judged.
const maxRungs = 1 << 13

// rung is a hold whose token is higher than those of all holds with a lower key.
type rung struct {
	key  int64 // ns: nothing before this is later than the hold
	hold *hold
}

// ladder finds the highest token among the holds with a key below a bound. It keeps only holds whose token is higher
// than all before them, so that keys and tokens grow together and the search is binary.
//
// Example: grants come into hand at 1, 2 and 3 s with tokens 5, 4 and 6. The ladder has (1 s, 5) and (3 s, 6). A
// request sent at 2.5 s must get a token above 5.
type ladder struct {
	rungs   []rung
	dropped bool // the lowest are forgotten
}

func (l *ladder) add(key int64, h *hold) {
	i := sort.Search(len(l.rungs), func(i int) bool { return l.rungs[i].key > key })
	if i > 0 && l.rungs[i-1].hold.token >= h.token {
		return
	}
	n := i
	for n < len(l.rungs) && l.rungs[n].hold.token <= h.token {
		n++
	}
	l.rungs = slices.Replace(l.rungs, i, n, rung{key, h})
	if len(l.rungs) > maxRungs {
		l.rungs = slices.Delete(l.rungs, 0, maxRungs/2)
		l.dropped = true
	}
}

// below returns the hold with the highest token of all with a key below bound, or nil; known is false if it may have
// been dropped.
func (l *ladder) below(bound int64) (h *hold, known bool) {
	n := sort.Search(len(l.rungs), func(i int) bool { return l.rungs[i].key >= bound })
	if n == 0 {
		return nil, !l.dropped
	}
	return l.rungs[n-1].hold, true
}

// tokenLock has the ladders of a lock's holds by mode: exclusive, shared.
type tokenLock struct {
	granted [2]ladder // by when the grant was in hand
	over    [2]ladder // by when the hold was over
}

type tokenRegressions struct {
	run         results.Run
	locks       []tokenLock
	begun       []*hold // at the latest moment, which may have more events
	regressions int64
	comparable  int64
	missing     int64
	unjudged    int64
	list        evidence.Shortlist
}

var tokenRegressionsKind = results.CheckerKind{
	Name: "token_regressions", New: newTokenRegressions, Follows: holdsOnce, Grants: true,
	Doc: "A later grant of a lock has a higher fencing token.",
	Counts: []results.Quantity{
		{
			Name: "token_regressions", Doc: "[later](#which-hold-is-later) grants with a lower or equal fencing token",
			Tone: results.Violation, Of: "grants that followed another one with a token", First: 6, Timeless: true,
		},
	},
	Witnesses: results.Aside("token_regression"),
}

func newTokenRegressions(run results.Run) results.Checker {
	return &tokenRegressions{
		run: run, locks: make([]tokenLock, len(run.Locks)),
	}
}

func (c *tokenRegressions) follow(*tracker) watch {
	if !c.applies() {
		return watch{}
	}
	return watch{began: c.began, ended: c.ended}
}

func (c *tokenRegressions) applies() bool { return c.run.Token != TokenNone && c.run.Token != "" }

// Observe takes the next event.
func (c *tokenRegressions) Observe(e *history.Event) {
	if len(c.begun) > 0 && e.Time > c.begun[0].start {
		c.judge()
	}
}

func (c *tokenRegressions) lock(i uint16) *tokenLock {
	for int(i) >= len(c.locks) {
		c.locks = append(c.locks, tokenLock{})
	}
	return &c.locks[i]
}

func (c *tokenRegressions) began(h *hold) {
	if h.token == 0 {
		c.missing++
		return
	}
	c.begun, h.pinned = append(c.begun, h), true
}

// ended records the end of the hold, for holds that begin later. A hold without length ends after it began.
func (c *tokenRegressions) ended(h *hold) {
	if at := h.overAt(); h.token != 0 && at != results.Forever {
		c.lock(h.lock).over[min(h.mode, 1)].add(h.latest(max(at, h.start+1)), h)
	}
}

// judge compares the grants of the latest moment with those before it.
func (c *tokenRegressions) judge() {
	for _, h := range c.begun {
		c.compare(h)
	}
	for _, h := range c.begun {
		c.lock(h.lock).granted[min(h.mode, 1)].add(h.latest(h.start), h)
	}
	c.begun = c.begun[:0]
}

// compare looks for an earlier grant whose token is too high for h to be a later one.
func (c *tokenRegressions) compare(h *hold) {
	l := c.lock(h.lock)
	var worst *hold
	seen, unknown := false, false
	look := func(m uint8, earlier *ladder, bound int64) {
		a, known := earlier.below(bound)
		unknown = unknown || !known
		if a == nil {
			return
		}
		seen = true
		regressed := a.token > h.token || a.token == h.token && conflict(m, h.mode)
		if regressed && (worst == nil || a.token > worst.token) {
			worst = a
		}
	}
	for m := range l.granted {
		look(uint8(m), &l.granted[m], h.earliest(h.issued))
		if h.fresh && conflict(uint8(m), h.mode) { // shared holds may have been granted in any order
			look(uint8(m), &l.over[m], h.earliest(h.start)+1)
		}
	}
	switch {
	case worst != nil:
		c.regressions++
		c.keep(worst, h)
	case unknown && !seen:
		c.unjudged++
	}
	if seen {
		c.comparable++
	}
}

func (c *tokenRegressions) keep(a, b *hold) {
	if !c.list.Wants(0) {
		return
	}
	p := evidence.Proof{Kind: "token_regression", From: a.start, To: b.start, Events: []history.Event{a.ok, b.ok}}
	p.Text = func() string {
		return fmt.Sprintf("%v got token %d with a request sent at %s, after %v had got token %d at %s",
			b.user, b.token, c.run.MS(b.issued), a.user, a.token, c.run.MS(a.start))
	}
	if a.latest(a.start) >= b.earliest(b.issued) { // it is later because of the end of a's hold
		p.Events = append(p.Events, a.over)
		p.Text = func() string {
			return fmt.Sprintf("%v got token %d at %s and was entitled to it, although the hold of %v, which had token %d, had ended at %s",
				b.user, b.token, c.run.MS(b.start), a.user, a.token, c.run.MS(a.over.Time))
		}
	}
	c.list.Add(p)
}

// Finish returns the finding.
func (c *tokenRegressions) Finish() results.Finding {
	f := results.Finding{}
	if !c.applies() {
		return f.NotApplicable("the lock has no fencing tokens")
	}
	c.judge()
	f = f.Judged("token_regressions", c.regressions, c.comparable)
	if c.missing > 0 {
		f.Warnings = append(f.Warnings, figure.Of(c.missing, "grant")+" came without a token")
	}
	if c.unjudged > 0 {
		f.Warnings = append(f.Warnings, figure.Of(c.unjudged, "request")+" waited while more grants came than are kept in memory")
	}
	if c.missing+c.unjudged > 0 && c.regressions == 0 {
		f.Verdict = results.Unknown
	}
	f.Witnesses = c.list.Witnesses(c.run)
	return f
}
