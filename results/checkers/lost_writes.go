// Lost writes: what the service acknowledged is there until its time is over.
//
// A grant of a lock that is a key in a store is a write. Servers are asked for the key right after each grant and, if
// a scenario wants it, once more at the end (observe: holder:LOCK). A grant must be there at the end if all of this
// is true:
//   - a server was observed to have it
//   - it is still valid
//   - no release of that lock was in progress since it was asked for: a late DEL deletes any key
//
// If none of the servers asked has it, the acknowledged write is lost.
//
// It cannot see the loss of a grant that no server was observed to have. Nor does it see the loss of a lock that was
// released in between, possibly by a user that never learned of its loss. So the count is a lower bound. It looks
// once: at the last time that a scenario asked for the lock.

package checkers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
)

type lostWrites struct {
	run      results.Run
	clocks   results.Clocks
	looks    map[uint16]*look // by lock
	holds    []*hold
	releases map[uint16][]*span // by lock: each from its start to its answer, or without end
	open     map[opOf]*span     // the releases in progress
	list     evidence.Shortlist
}

// look is the last time that servers were asked who has a lock.
type look struct {
	step int
	last map[string]history.Observation  // by node: its last answer
	keep map[grantOf]bool                // the grants in these answers
	at   span                            // when the servers were asked: all between its ends
	had  map[grantOf]history.Observation // the first time that a server was observed to have a grant
}

type grantOf struct {
	user  history.User
	grant uint32
}

type opOf struct {
	user history.User
	op   uint32
}

var lostWritesKind = results.CheckerKind{
	Name: "lost_writes", New: newLostWrites, Follows: holdsOnce,
	Doc: "A grant that was seen on a server stays until it expires or the lock is released. Judged where servers were asked at the end.",
	Counts: []results.Quantity{
		{
			Name: "acknowledged_writes_lost",
			Doc:  "grants that were seen on a server and that no server asked at the end has, although they are still valid and no release of the lock has been under way since their acquire ([asked by](scenarios.md#steps) `observe: \"holder:LOCK\"`)",
			Tone: results.Violation, Of: "grants that were seen on a server", NeedsAll: true,
		},
	},
	Witnesses: results.Aside("lost_write"),
}

func newLostWrites(run results.Run) results.Checker {
	c := &lostWrites{
		run: run, clocks: run.Clocks(), looks: map[uint16]*look{}, releases: map[uint16][]*span{},
		open: map[opOf]*span{},
	}
	locks := map[string]uint16{}
	for i, name := range run.Locks {
		locks[name] = uint16(i)
	}
	for _, o := range run.Observed {
		lock, ok := strings.CutPrefix(o.Fact, history.FactHolder)
		if i, known := locks[lock]; ok && known && o.Answer != "" && o.Node != history.Service {
			c.saw(i, o)
		}
	}
	for i, l := range c.looks {
		if l.step == 0 {
			delete(c.looks, i) // no question at the end
			continue
		}
		l.close()
	}
	return c
}

// saw takes a server's answer about a lock. The answers to the last asking step make the look.
func (c *lostWrites) saw(lock uint16, o history.Observation) {
	l := c.looks[lock]
	if l == nil {
		l = &look{had: map[grantOf]history.Observation{}}
		c.looks[lock] = l
	}
	if o.User != nil {
		k := grantOf{*o.User, o.Grant}
		if first, ok := l.had[k]; !ok || o.Answered < first.Answered {
			l.had[k] = o
		}
	}
	if o.By != history.ByObserve || o.Step < l.step {
		return
	}
	if o.Step > l.step {
		l.step, l.last = o.Step, map[string]history.Observation{}
	}
	if before, ok := l.last[o.Node]; !ok || o.Asked >= before.Asked {
		l.last[o.Node] = o
	}
}

// close summarises the answers of the look.
func (l *look) close() {
	l.at, l.keep = span{results.Forever, 0}, map[grantOf]bool{}
	for _, o := range l.last {
		l.at.from, l.at.until = min(l.at.from, o.LastAsked), max(l.at.until, o.LastAnswered)
		if o.User != nil {
			l.keep[grantOf{*o.User, o.Grant}] = true
		}
	}
}

// text describes the answers.
func (l *look) text() string {
	var out []string
	for _, node := range slices.Sorted(maps.Keys(l.last)) {
		what := "another key"
		switch o := l.last[node]; {
		case o.User != nil:
			what = fmt.Sprintf("the key of %v", *o.User)
		case o.Answer == "none":
			what = "no key"
		}
		out = append(out, node+" has "+what)
	}
	return strings.Join(out, ", ")
}

// Observe takes the next event.
func (c *lostWrites) Observe(e *history.Event) {
	if len(c.looks) == 0 {
		return
	}
	switch {
	case e.Kind == history.Release && e.Phase == history.Invoke:
		r := &span{c.clocks.Early(e.User, e.Time), results.Forever}
		c.open[opOf{e.User, e.Op}] = r
		c.releases[e.Lock] = append(c.releases[e.Lock], r)
	case e.Kind == history.Release:
		op := opOf{e.User, e.Op}
		if r := c.open[op]; r != nil && e.Phase != history.Info {
			r.until = c.clocks.Late(e.User, e.Time)
		}
		delete(c.open, op)
	default:
	}
}

func (c *lostWrites) follow(*tracker) watch {
	if len(c.looks) == 0 {
		return watch{}
	}
	return watch{began: c.began}
}

func (c *lostWrites) began(h *hold) { c.holds, h.pinned = append(c.holds, h), true }

// lost reports whether the hold's key should be there and is not.
func (c *lostWrites) lost(h *hold, l *look) bool {
	g := grantOf{h.user, h.grant}
	seen, ok := l.had[g]
	if !ok || seen.Answered >= l.at.from || l.keep[g] || !h.entitled(l.at.from, l.at.until) {
		return false
	}
	return !slices.ContainsFunc(c.releases[h.lock], func(r *span) bool {
		return r.until >= h.earliest(h.issued) &&
			r.from < l.at.until
	})
}

// Finish returns the finding.
func (c *lostWrites) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	if len(c.looks) == 0 {
		return f.NotApplicable("no server was asked for a lock at the end")
	}
	var lost int64
	seen := 0
	for _, l := range c.looks {
		seen += len(l.had)
	}
	for _, h := range c.holds {
		l := c.looks[h.lock]
		if l == nil || !c.lost(h, l) {
			continue
		}
		if lost++; !c.list.Wants(0) {
			continue
		}
		had, at := l.had[grantOf{h.user, h.grant}], l.at.until
		proved := []history.Observation{had}
		for _, node := range slices.Sorted(maps.Keys(l.last)) {
			proved = append(proved, l.last[node])
		}
		c.list.Add(evidence.Proof{
			Kind: "lost_write", From: had.Answered, To: at, Holds: []evidence.Hold{h}, Observed: proved,
			Text: func() string {
				return fmt.Sprintf("%v was granted %s at %s, valid until %s, and %s had its key at %s; at %s no server has it: %s", h.user,
					c.run.LockName(h.lock), c.run.MS(h.start), c.run.MS(h.valid), had.Node, c.run.MS(had.Answered),
					c.run.MS(at), l.text())
			},
		})
	}
	f.Witnesses = c.list.Witnesses(c.run)
	return f.Judged("acknowledged_writes_lost", lost, int64(seen))
}
