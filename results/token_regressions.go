// Token regressions: a later grant of a lock has a higher fencing token.
//
// Later goes by time alone: the one grant was in a user's hand before the other's request was sent. Two who share a lock
// may have the same token: it then belongs to the lock's being held, not to the grant.
//
// It cannot see a regression between grants whose requests overlap, nor tokens that grew but that the resource cannot
// compare.

package results

import (
	"fmt"
	"slices"
	"sort"

	"github.com/lockquake/lockquake/history"
)

// The values of Run.Token.
const (
	TokenNone     = "none"      // the lock's grants carry no token
	TokenService  = "service"   // the service gives it
	TokenHomeMade = "home-made" // something beside the service makes it
)

// maxTops bounds what is remembered of one lock's grants; a request that waited longer than that is not judged.
const maxTops = 1 << 15

// top is the highest token among the grants up to a time.
type top struct {
	start int64
	ok    *history.Event // the grant that has it
}

type tokenRegressions struct {
	run         Run
	worst       int64 // the largest clock error
	locks       []tokenLock
	regressions int64
	missing     int64
	unjudged    int64
	list        shortlist
}

type tokenLock struct {
	tops    []top // in the order of start; each has a higher token than the one before
	dropped bool  // older ones are forgotten
}

func newTokenRegressions(run Run) Checker {
	c := &tokenRegressions{run: run, locks: make([]tokenLock, len(run.Locks)), list: shortlist{room: MaxWitnesses}}
	for _, p := range run.Processes {
		c.worst = max(c.worst, p.ErrorNS)
	}
	return c
}

// Observe takes the next event.
func (c *tokenRegressions) Observe(e *history.Event) {
	if e.Kind != history.Acquire || e.Phase != history.Ok || c.run.Token == TokenNone || c.run.Token == "" {
		return
	}
	if e.Token == 0 {
		c.missing++
		return
	}
	for int(e.Lock) >= len(c.locks) {
		c.locks = append(c.locks, tokenLock{})
	}
	l := &c.locks[e.Lock]
	// The grants that were in hand before this one's request was sent.
	n := sort.Search(len(l.tops), func(i int) bool { return l.tops[i].start+2*c.worst >= e.Value })
	switch {
	case n == 0 && l.dropped:
		c.unjudged++
	case n > 0 && l.tops[n-1].ok.Token == e.Token && !conflict(l.tops[n-1].ok.Mode, e.Mode):
	case n > 0 && l.tops[n-1].ok.Token >= e.Token:
		c.regressions++
		c.keep(l.tops[n-1].ok, e)
	}
	l.add(e)
}

func (l *tokenLock) add(e *history.Event) {
	if n := len(l.tops); n > 0 && l.tops[n-1].ok.Token >= e.Token {
		return
	}
	if len(l.tops) == maxTops {
		l.tops = slices.Delete(l.tops, 0, maxTops/2)
		l.dropped = true
	}
	ok := *e
	l.tops = append(l.tops, top{e.Time, &ok})
}

func (c *tokenRegressions) keep(a, e *history.Event) {
	if !c.list.wants(0) {
		return
	}
	first, second := *a, *e
	c.list.add(proof{
		kind: "token_regression", from: first.Time, to: second.Time, events: []history.Event{first, second},
		text: func() string {
			return fmt.Sprintf("%v got token %d with a request sent at %s, after %v had got token %d at %s",
				second.User, second.Token, c.run.ms(second.Value), first.User, first.Token, c.run.ms(first.Time))
		},
	})
}

// Finish returns the finding.
func (c *tokenRegressions) Finish() Finding {
	f := Finding{Checker: "token_regressions", Verdict: verdictOf(c.regressions)}
	if c.run.Token == TokenNone || c.run.Token == "" {
		return skipped(f, "the lock has no fencing tokens", []string{"token_regressions"})
	}
	f.Counts = map[string]*int64{"token_regressions": count(c.regressions)}
	if c.missing > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%d grants came without a token", c.missing))
	}
	if c.unjudged > 0 {
		f.Warnings = append(f.Warnings, fmt.Sprintf("%d requests waited for more grants than are remembered", c.unjudged))
	}
	if c.missing+c.unjudged > 0 && c.regressions == 0 {
		f.Verdict = Unknown
	}
	f.Witnesses = c.list.witnesses(c.run)
	return f
}
